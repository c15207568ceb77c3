"""What the rings share with ring 1."""

from __future__ import annotations

from tests.conftest import pytest_sessionstart

__all__ = ["pytest_sessionstart"]
