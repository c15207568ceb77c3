# SPDX-License-Identifier: Apache-2.0
"""Find the member of etcd on this host, survey its cluster, and save its keyspace.

This is no adapter to Kubernetes: it must work while the API server does not answer, and on hosts that have etcd and no
Kubernetes.
"""
