"""The store: records, configs and history in one SQLite file."""
