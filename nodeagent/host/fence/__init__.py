"""The I/O fence on this host: what hears the victim, what is moved, and the turns between. Begin with ``fence``."""
