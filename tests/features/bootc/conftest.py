# SPDX-License-Identifier: Apache-2.0
"""A private bus."""

from __future__ import annotations

from tests.support.fixtures import bus, no_leaked_fds, private_bus

__all__ = ["bus", "no_leaked_fds", "private_bus"]
