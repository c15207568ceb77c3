# SPDX-License-Identifier: Apache-2.0
"""The measurements of the fence: etcd's histograms, and an fsync probe."""
