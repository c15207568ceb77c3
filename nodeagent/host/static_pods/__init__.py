# SPDX-License-Identifier: Apache-2.0
"""Static pods of the kubelet on this host: which of them run, and the replacement of a manifest."""
