# SPDX-License-Identifier: Apache-2.0
"""The command line, with a daemon on a bus of its own."""

from __future__ import annotations

from tests.cli.daemon.conftest import (
    bus_address,
    cli,
    daemon,
    loop_of_the_test,
    no_settings,
    private_bus,
    three_in_the_morning,
)

__all__ = ["bus_address", "cli", "daemon", "loop_of_the_test", "no_settings", "private_bus", "three_in_the_morning"]
