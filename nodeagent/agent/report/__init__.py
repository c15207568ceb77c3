"""The report: the only writer of the status, and its sinks."""
