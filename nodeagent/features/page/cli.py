# SPDX-License-Identifier: Apache-2.0
"""`nodeagent report`: write the course of an update as one HTML page."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodeagent import __version__
from nodeagent.cli._client import Client, ask
from nodeagent.cli._io import printable
from nodeagent.errors import InvalidInput
from nodeagent.features.page.view.page import page
from nodeagent.features.page.view.timeline import MeasuredReboot, measured_reboot, timeline_of
from nodeagent.host.fs.atomic import new_file
from nodeagent.reasons import Reason

if TYPE_CHECKING:
    from nodeagent.cli._offline import Stored

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
    update, before = ask(lambda client: _fetch(client, args.id), lambda stored: _read(stored, args.id))
    html = page(update, host=socket.gethostname(), version=__version__, other=_reboot(before))
    if args.html == STDOUT:
        sys.stdout.write(html)
        return 0
    try:
        _save(Path(args.html), html.encode())
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(f"cannot write {args.html}: {cause}", reason=Reason.CANNOT_WRITE) from None
    print(f"wrote {printable(args.html)}, the update to {printable(update['to_name'])}; open it in a browser")
    return 0


def _save(path: Path, html: bytes) -> None:
    """Write the page as a whole: a full disk, or a kill, leaves the previous one. Links are not followed."""
    # In a directory like /tmp, another user may have put a link there.
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    if path.is_symlink() or (path.exists() and not path.is_file()):
        # A link and a directory are refused, a device or a pipe is written to.
        with os.fdopen(os.open(path, flags), "wb", buffering=0) as file:
            file.write(html)
        return
    # umask(2) returns the mask only by setting another one.
    mask = os.umask(0o077)
    os.umask(mask)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with new_file(folder, path.name, mode=0o644 & ~mask) as write:
            write(html)
    finally:
        os.close(folder)


async def _fetch(client: Client, update_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the update and, if it had no reboot, the newest updates with a reboot."""
    update = await client.update(update_id)
    updates = [] if update["reboots"] else await client.history(SEARCHED)
    return update, [await client.update(other) for other in _rebooted(updates)]


def _read(stored: Stored, update_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    update = stored.update(update_id)
    updates = [] if update["reboots"] else stored.history(SEARCHED)
    return update, [stored.update(other) for other in _rebooted(updates)]


def _rebooted(updates: list[dict[str, Any]]) -> list[str]:
    return [update["update_id"] for update in updates if update["reboots"]][:CANDIDATES]


def _reboot(updates: list[dict[str, Any]]) -> MeasuredReboot | None:
    for update in updates:
        timeline = timeline_of(update)
        if timeline is not None and (seconds := measured_reboot(timeline)) is not None:
            return MeasuredReboot(seconds, update["to_name"])
    return None
