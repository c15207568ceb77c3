# SPDX-License-Identifier: Apache-2.0
"""`nodeagent maintenance`: block updates and reboots of this host while an operator works on it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import aclosing
from datetime import datetime
from typing import Any

from nodeagent.cli._client import ABSENCE, Client, ask, typed_options
from nodeagent.cli._io import emit, printable, warn
from nodeagent.cli._render import ago, clock, local_now, local_times
from nodeagent.cli.lease import describe_lease
from nodeagent.core.times import parse_duration
from nodeagent.errors import InvalidInput, Refused
from nodeagent.features.maintenance.reasons import MaintenanceReason
from nodeagent.reasons import Reason

# Phases without an update in progress.
AT_REST = ("Idle", "Degraded")

# The first line of the answer, by the state.
UNDER_WAY = "this host is in maintenance: nodeagent neither updates nor reboots it"
HEADLINES = {
    "planned": "maintenance is planned: it begins when the lease is free, before any update",
    "ending": "maintenance is over, but not everything is restored yet",
    "draining": f"{UNDER_WAY}; its pods are being moved",
    "powering off": f"{UNDER_WAY}; it is about to power off",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="maintenance_command", metavar="COMMAND", required=True)
    start = commands.add_parser("start", help="block disruptions of this host until stopped")
    start.add_argument("--reason", required=True, metavar="TEXT", help="reason shown to others")
    start.add_argument("--requester", default="", metavar="TEXT", help="on whose behalf, if not yours")
    start.add_argument(
        "--for", dest="duration", default="", metavar="DURATION", help="90s, 30min, 2h or 3d (default: until stopped)"
    )
    start.add_argument("--wait", action="store_true", help="if the lease has another holder, begin when it is free")
    start.add_argument("--drain", action="store_true", help="cordon the node and move its pods; uncordon at the end")
    start.add_argument("--power-off", action="store_true", help="power the host off, after the drain if requested")
    stop = commands.add_parser("stop", help="end the maintenance; a waiting update begins at once")
    status = commands.add_parser("status", help="show the maintenance, its start and its reason")
    for command in (start, stop, status):
        command.add_argument("--json", action="store_true", help="one JSON object (nodeagent/maintenance/v1)")


def run(args: argparse.Namespace) -> int:
    """Return 0. Raise ``Refused`` if the lease has another holder, or if there is no maintenance to stop."""
    if args.maintenance_command == "start":
        status = _start(args)
    elif args.maintenance_command == "stop":
        status = ask(_stop)
    else:
        status = ask(Client.status, lambda stored: stored.status())
    maintenance, lease = status.get("maintenance"), status["lease"]
    ours = lease is not None and lease.get("operation") == "maintenance"
    if args.json:
        active = ours if maintenance is None else maintenance["state"] not in ("planned", "ending")
        about = {"active": active, "lease": lease if ours else None, "maintenance": maintenance}
        emit({"schema": "nodeagent/maintenance/v1", **about})
    elif maintenance is None and ours:
        # The store of this host was lost, and the lease in the cluster was not.
        print(UNDER_WAY)
        describe_lease(lease)
    elif maintenance is None:
        print("no maintenance is under way")
    else:
        _describe(maintenance)
    return 0


async def _stop(client: Client) -> dict[str, Any]:
    await client.request("StopMaintenance")
    return await client.status()


def seconds_of(text: str) -> int:
    """Return the seconds of 90s, 30min, 2h or 3d. Raise ``InvalidInput``."""
    try:
        return parse_duration(text)
    except ValueError as error:
        reason = MaintenanceReason.BAD_DURATION
        raise InvalidInput(str(error), reason=reason, hint=reason.hint) from None


def rows(maintenance: dict[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    """Yield the row of ``nodeagent status``."""
    until, message = maintenance["until"], maintenance["message"]
    # Its lease has no row of its own, so this one names the requester.
    text = f"{maintenance['state']}: {maintenance['requester']}: {maintenance['reason']}"
    text += f" (since {clock(maintenance['since'], now)}"
    text += f", until {clock(until, now)})" if until else ", until stopped by an operator)"
    yield "maintenance", printable(f"{text}; {message}" if message else text)


def delay(maintenance: dict[str, Any], now: datetime) -> str:
    """Return a description of the maintenance that delays a request. An operator may have forgotten it."""
    # Since the request, because updates wait from then on.
    until = f", until {clock(maintenance['until'], now)}" if maintenance["until"] else ""
    since = f"since {clock(maintenance['since'], now)}, {ago(maintenance['since'], now)}{until}"
    text = f"maintenance is {maintenance['state']}: {maintenance['requester']}: {maintenance['reason']}"
    return printable(f"{text} ({since})")


def _start(args: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, str | int | bool] = {"drain": args.drain, "power_off": args.power_off, "wait": args.wait}
    if args.requester:
        options["requester"] = args.requester
    if args.duration:
        options["seconds"] = seconds_of(args.duration)
    try:
        return ask(lambda client: _request(client, args.reason, options, quiet=args.json))
    except Refused as error:
        if error.reason == Reason.LEASE_HELD:
            error.hint = "nodeagent lease show names the holder; with --wait it begins when the lease is free"
        raise


async def _request(client: Client, reason: str, options: dict[str, str | int | bool], *, quiet: bool) -> dict[str, Any]:
    before = await client.status()
    warned = ""
    if before["phase"] not in AT_REST and not quiet:
        warn(f"an update to {before['desired']} is in progress ({before['phase']})")
    status = await client.change("StartMaintenance", "sa{sv}", reason, typed_options(options))
    if (status.get("maintenance") or {}).get("state") != "planned":
        return status
    async with aclosing(client.follow(ABSENCE)) as statuses:
        async for changed in statuses:
            # None while the daemon restarts. The request is in its store.
            status = changed or status
            maintenance = status.get("maintenance")
            if maintenance is None or maintenance["state"] != "planned":
                break
            if maintenance["message"] != warned and not quiet:
                warned = maintenance["message"]
                warn(f"waiting: {warned}; Ctrl-C does not cancel the request, nodeagent maintenance stop does")
    return status


def _describe(maintenance: dict[str, Any]) -> None:
    print(HEADLINES.get(maintenance["state"], UNDER_WAY))
    now = local_now()
    rows = [("requester", maintenance["requester"]), ("why", maintenance["reason"])]
    rows.append(("since", f"{clock(maintenance['since'], now)}, {ago(maintenance['since'], now)}"))
    rows.append(("until", clock(maintenance["until"], now) if maintenance["until"] else "stopped by an operator"))
    if maintenance["drained"]:
        rows.append(("drained", f"{clock(maintenance['drained'], now)}, {ago(maintenance['drained'], now)}"))
    if maintenance["message"]:
        rows.append(("message", local_times(maintenance["message"], now)))
    for label, text in rows:
        print(f"{label:<9}  {printable(text)}")
