"""Adapters to a cluster. Loaded only where one is configured: what they import is larger than all of the rest."""
