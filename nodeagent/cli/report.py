"""`nodeagent report`: write the course of an update as one HTML page."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from nodeagent.cli import _offline
from nodeagent.cli._client import Client, ask
from nodeagent.cli._io import printable
from nodeagent.errors import InvalidInput, Unreachable
from nodeagent.reasons import Reason

if TYPE_CHECKING:
    from nodeagent.core.report.course.comparison import MeasuredReboot

__all__ = ["add_arguments", "run"]

STDOUT = "-"
# Updates with a reboot that are read in search of one that was measured.
CANDIDATES = 3
SEARCHED = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", default="", metavar="ID", help="the update, or the beginning of its id (default: the newest)"
    )
    parser.add_argument(
        "--html", required=True, metavar="FILE", help="write the page to FILE, or to standard output for -"
    )


def run(args: argparse.Namespace) -> int:
    import socket

    from nodeagent import __version__
    from nodeagent.core.report.course.page import page

    try:
        update, before = ask(lambda client: _fetch(client, args.id))
    except Unreachable as why:
        update, before = _read(why, args.id)
    html = page(update, host=socket.gethostname(), version=__version__, other=_reboot(before))
    if args.html == STDOUT:
        sys.stdout.write(html)
        return 0
    try:
        # In a directory like /tmp, another user may have put a link there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(args.html, flags, 0o644), "w", encoding="utf-8") as file:
            file.write(html)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(f"cannot write {args.html}: {cause}", reason=Reason.CANNOT_WRITE) from None
    print(f"wrote {printable(args.html)}, the update to {printable(update['to_name'])}; open it in a browser")
    return 0


async def _fetch(client: Client, update_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the update and, if it had no reboot, the newest ones that had one."""
    update = await client.update(update_id)
    known = [] if update["reboots"] else await client.history(SEARCHED)
    return update, [await client.update(other) for other in _rebooted(known)]


def _read(why: Unreachable, update_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    update = _offline.update(why, update_id)
    known = [] if update["reboots"] else _offline.history(why, SEARCHED)
    return update, [_offline.update(why, other) for other in _rebooted(known)]


def _rebooted(updates: list[dict[str, Any]]) -> list[str]:
    return [update["update_id"] for update in updates if update["reboots"]][:CANDIDATES]


def _reboot(updates: list[dict[str, Any]]) -> MeasuredReboot | None:
    from nodeagent.core.report.course.comparison import MeasuredReboot
    from nodeagent.core.report.course.timeline import measured_reboot, timeline_of

    for update in updates:
        timeline = timeline_of(update)
        if timeline is not None and (seconds := measured_reboot(timeline)) is not None:
            return MeasuredReboot(seconds, update["to_name"])
    return None
