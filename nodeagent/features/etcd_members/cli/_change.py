# SPDX-License-Identifier: Apache-2.0
"""Begin a join, leave or replacement, and follow it to its end."""

from __future__ import annotations

import argparse
from contextlib import aclosing
from typing import Any, Final

from nodeagent.cli._client import ABSENCE, Client, ask, typed_options
from nodeagent.cli._io import emit, printable
from nodeagent.errors import error_of
from nodeagent.features.etcd_members.decide.membership import MemberRequest
from nodeagent.reasons import hint, reason_of

SCHEMA: Final = "nodeagent/etcd-member/v1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-wait", action="store_true", help="return when the operation has begun")
    parser.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")


def run(request: MemberRequest, *, wait: bool, as_json: bool) -> int:
    """Begin an operation and wait for its end. Raise an error with its reason if it failed."""
    operation = ask(lambda client: _change(client, request, wait=wait, quiet=as_json))
    if as_json:
        emit({"schema": SCHEMA, **operation})
    if operation["reason"]:
        reason = reason_of(operation["reason"])
        raise error_of(reason, str(operation["ended"]).removeprefix(f"{reason}: "), hint=hint(reason))
    if not as_json:
        print(f"{operation['operation']}: {printable(operation['message'])}")
    return 0


async def _change(client: Client, request: MemberRequest, *, wait: bool, quiet: bool) -> dict[str, Any]:
    named = typed_options({"member": request.member} if request.member else {})
    status = await client.change("ChangeEtcdMember", "sa{sv}", str(request.kind), named)
    operation: dict[str, Any] | None = status.get("etcd_member")
    if operation is None or not wait:
        return operation or {"operation": str(request.kind), "message": "requested", "ended": "", "reason": ""}
    shown = ""
    async with aclosing(client.follow(ABSENCE)) as statuses:
        async for changed in statuses:
            if changed is None:
                # The daemon restarts, and then continues the operation.
                continue
            latest = changed.get("etcd_member")
            if latest is None or latest["id"] != operation["id"]:
                # The daemon was restarted, and the operation ended before it answered.
                return {**operation, "message": "the operation has ended; nodeagent etcd status shows the members"}
            operation = latest
            if operation["ended"]:
                break
            if operation["message"] != shown and not quiet:
                shown = operation["message"]
                print(printable(shown), flush=True)
    return operation
