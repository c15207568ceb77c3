"""The member of etcd on this host: is there one, how is its cluster, and may it be disrupted.

In this room and not among the adapters to a cluster: the guard has to answer while the API server does not, and on
hosts that have etcd and no Kubernetes.
"""
