# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the adapters of the fence."""

from __future__ import annotations

from tests.support.fixtures import bus, loop_device, no_leaked_fds, private_bus

__all__ = ["bus", "loop_device", "no_leaked_fds", "private_bus"]
