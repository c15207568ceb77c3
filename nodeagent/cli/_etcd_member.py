"""The part of `nodeagent etcd` that changes the membership, and `prepare`, which permits the start of etcd."""

from __future__ import annotations

import argparse
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from nodeagent.cli._client import ABSENCE, Client, ask
from nodeagent.cli._io import emit, printable
from nodeagent.errors import AgentError, InvalidInput, Terminal
from nodeagent.kinds import Kind
from nodeagent.reasons import Reason, hint

if TYPE_CHECKING:
    from nodeagent.core.etcd.member_facts import Identity

MEMBER_SCHEMA: Final = "nodeagent/etcd-member/v1"
DONE: Final = "done"


def add_commands(commands: Any) -> None:
    join = commands.add_parser("join", help="make this host a member: learner first, promoted when it is in sync")
    leave = commands.add_parser("leave", help="remove the member of this host; its data are kept")
    replace = commands.add_parser("replace", help="remove a lost member, then join this host in its place")
    replace.add_argument("--member", default="", metavar="NAME", help="name or id (default: that of this host)")
    for command in (join, leave, replace):
        command.add_argument("--no-wait", action="store_true", help="return when the operation has begun")
        command.add_argument("--json", action="store_true", help=f"one JSON object ({MEMBER_SCHEMA})")
    commands.add_parser("prepare", help="permit the start of etcd and write its config; for etcd.service")


def change(args: argparse.Namespace) -> int:
    """Begin an operation and wait for its end. Raise an error with its reason if it failed."""
    found = ask(lambda client: _change(client, args))
    if args.json:
        emit({"schema": MEMBER_SCHEMA, **found})
    ended = str(found["ended"])
    if ended and ended != DONE:
        raise _failed(ended)
    if not args.json:
        print(f"{found['operation']}: {printable(found['message'])}")
    return 0


async def _change(client: Client, args: argparse.Namespace) -> dict[str, Any]:
    # Only replace has the option.
    status = await client.change_etcd_member(args.etcd_command, getattr(args, "member", ""))
    found = _progress(status)
    if found is None or args.no_wait:
        return found or {"operation": args.etcd_command, "message": "requested", "ended": ""}
    shown = ""
    async with aclosing(client.follow(ABSENCE)) as statuses:
        async for changed in statuses:
            if changed is None:
                # The daemon restarts, and then continues the operation.
                continue
            latest = _progress(changed)
            if latest is None or latest["id"] != found["id"]:
                # The daemon was restarted, and the operation ended before it answered.
                return {**found, "message": "the operation has ended; nodeagent etcd status shows the members"}
            found = latest
            if found["ended"]:
                break
            if found["message"] != shown and not args.json:
                shown = found["message"]
                print(printable(shown), flush=True)
    return found


def _progress(status: dict[str, Any]) -> dict[str, Any] | None:
    found: dict[str, Any] | None = status.get("etcd_member")
    return found


def _failed(ended: str) -> AgentError:
    word, _, message = ended.partition(": ")
    reason = Reason(word)
    error = Terminal(message, reason=reason, hint=hint(reason))
    # The exit status 2 would blame arguments that the daemon has accepted.
    error.exit_code = reason.kind.exit_code if reason.kind is not Kind.INPUT else 1
    return error


def prepare(_args: argparse.Namespace) -> int:
    """Answer for the start of etcd, with or without a daemon: etcd may start before it."""
    import asyncio

    from nodeagent.cli import _offline

    asyncio.run(_prepare(_offline.etcd_note()))
    return 0


async def _prepare(note: Identity | None) -> None:
    from nodeagent.host.etcd import member_host
    from nodeagent.host.etcd.member_config import MEMBER_FILE, read_member_config

    config = await read_member_config()
    if config is None:
        reason = Reason.ETCD_NOT_CONFIGURED
        raise InvalidInput("this host has no settings for a member of etcd", reason=reason, hint=hint(reason))
    await member_host.prepare(config, note)
    print(f"etcd may start with {MEMBER_FILE}")
