# SPDX-License-Identifier: Apache-2.0
"""`nodeagent boot-complete`: wait until the update of this boot is verified; for nodeagent-boot-complete.service."""

from __future__ import annotations

import argparse
from contextlib import aclosing

from nodeagent.cli._client import Client, ask
from nodeagent.cli._follow import progress_line
from nodeagent.report.boot_complete import boot_verified


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(_args: argparse.Namespace) -> int:
    """Return 0 if this boot is good, 1 if an update ended half-way in it. Waits as long as that is open."""
    good, line = ask(_wait)
    print("this boot is verified" if good else f"this boot is not verified: {line}")
    return 0 if good else 1


async def _wait(client: Client) -> tuple[bool, str]:
    # No limit for an absent daemon: the unit has none either, and a boot that is not verified must not look like a good
    # one.
    async with aclosing(client.follow()) as statuses:
        async for status in statuses:
            if (good := boot_verified(status)) is not None:
                return good, progress_line(status)
    raise AssertionError("the status of the daemon is followed without end")
