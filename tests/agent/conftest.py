# SPDX-License-Identifier: Apache-2.0
"""Tests of the agent use the fixtures of the tests of updates."""

from tests.update.conftest import failed_assertions_pass

__all__ = ["failed_assertions_pass"]
