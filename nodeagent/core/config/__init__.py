"""Configs: from untrusted text to a validated ``MachineConfig``."""
