# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the I/O fence: what staging an update costs etcd on the same disk, with and without one.

``python -m integration.bench.fence`` is the whole of it; ``docs/research/fence.md`` has the result and how to read it.
"""
