"""The measurements of the fence: etcd's histograms, pressure, an fsync probe."""
