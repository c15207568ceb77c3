"""The metrics, alerting rules and queries of the dashboard, in a real Prometheus."""
