# SPDX-License-Identifier: Apache-2.0
"""etcd: quorum and disk latency, as data."""
