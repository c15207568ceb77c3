"""How long a fallback reboot takes on a test host, soft and full."""
