# SPDX-License-Identifier: Apache-2.0
"""What a plan that stages shows of the bootloader."""

from __future__ import annotations

from nodeagent.features.bootloader.decide.check import BootloaderCheck, check_to_dict
from tests.cli.daemon.conftest import Cli, bus_address, cli, daemon, loop_of_the_test, no_settings, three_in_the_morning
from tests.cli.daemon.fake_daemon import FakeDaemon
from tests.cli.daemon.test_apply import STAGED_OS, UNREAD, config, shows_a_staged_plan
from tests.support.golden import Golden

__all__ = ["bus_address", "cli", "config", "daemon", "loop_of_the_test", "no_settings", "three_in_the_morning"]

REFUSES = {
    **check_to_dict(BootloaderCheck()),
    "summary": "bootloader shim-15.6-2 installed, shim-16.1-3 in the new OS",
    "then": "refuse",
}


def test_an_update_that_is_refused(cli: Cli, daemon: FakeDaemon, config: str, golden: Golden) -> None:
    more = {"staged": True, "os": {**STAGED_OS, **UNREAD}, "bootloader": REFUSES}
    shows_a_staged_plan(cli, daemon, config, golden, more, " that is refused")
