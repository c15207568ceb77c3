# SPDX-License-Identifier: Apache-2.0
"""A guard for what opens files."""

from __future__ import annotations

from tests.support.fixtures import no_leaked_fds

__all__ = ["no_leaked_fds"]
