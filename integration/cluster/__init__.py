# SPDX-License-Identifier: Apache-2.0
"""The cluster ring: a real kube-apiserver with a real etcd on loopback."""
