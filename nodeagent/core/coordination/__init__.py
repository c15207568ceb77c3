"""Coordination with other actors: lease, slots, drain, windows and maintenance, as data."""
