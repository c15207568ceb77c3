"""The I/O fence: how fast an update of the OS may write, decided from what etcd on the same disk feels.

``signals`` says how the victim fares, ``shape`` what may be done to the disk's queue, ``controller`` decides. All of it
is arithmetic: times are seconds on a monotonic clock and come in as arguments, rates are bytes a second.
"""
