"""Adapters to this machine."""
