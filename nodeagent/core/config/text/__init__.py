"""Untrusted text to plain data, within bounds of time and memory."""
