"""Files of the host, written atomically and without following symlinks out of place."""
