"""The measurements of the fence: etcd's histograms, and an fsync probe."""
