"""The cluster ring: a real kube-apiserver with a real etcd on loopback."""
