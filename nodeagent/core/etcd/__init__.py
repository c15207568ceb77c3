"""etcd: quorum and disk latency, as data."""
