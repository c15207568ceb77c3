"""The block devices of this host: which disk a path lies on, and when that changes. pyudev is imported here only."""
