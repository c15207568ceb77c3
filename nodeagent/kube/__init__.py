"""Adapters to a cluster. Loaded only where one is configured, because the client library is larger than the agent."""
