# SPDX-License-Identifier: Apache-2.0
"""The fence: limits on disk I/O while a deployment is staged, so that etcd keeps its latency."""
