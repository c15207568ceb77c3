# SPDX-License-Identifier: Apache-2.0
"""A test host that is a node of a cluster: a real kubelet, containerd and runc, with pods of images made here."""
