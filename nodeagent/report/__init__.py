"""Reporting: the status, metrics, history and Kubernetes objects that follow from events."""
