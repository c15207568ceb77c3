"""The course of an update, from the desired config to its end."""
