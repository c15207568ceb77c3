"""Which update begins, and what happens between updates."""
