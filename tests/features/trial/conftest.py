# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the commands and the adapter of logind."""

from __future__ import annotations

from tests.cli.daemon.conftest import bus_address, cli, daemon, loop_of_the_test, no_settings, three_in_the_morning
from tests.support.fixtures import bus, no_leaked_fds, private_bus

__all__ = [
    "bus",
    "bus_address",
    "cli",
    "daemon",
    "loop_of_the_test",
    "no_leaked_fds",
    "no_settings",
    "private_bus",
    "three_in_the_morning",
]
