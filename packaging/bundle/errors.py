"""The one error that a person at the build machine sees; its text says what to do."""

from __future__ import annotations


class BuildError(Exception):
    """The package cannot be built; nothing was written to the output directory."""
