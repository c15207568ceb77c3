# SPDX-License-Identifier: Apache-2.0
"""`nodeagent fleet status`: show the rollout status of all pools.

It uses the kubeconfig of the caller, and needs neither the daemon nor root. An upgrade is complete when `status` exits
with 0, and not before: paused pools count like all others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from nodeagent.cli._cluster import add_access, with_cluster
from nodeagent.cli._io import emit, printable
from nodeagent.cli._render import BAD, GOOD, WARN, counted, paint, table
from nodeagent.core.enumerated import enumerated
from nodeagent.errors import Refused
from nodeagent.features.slots.decide.answer import Group, attention, configs, groups, rollout_to_dict, why
from nodeagent.features.slots.decide.rollout import PoolRollout, Rollout, rollout_of
from nodeagent.features.slots.decide.stuck import StuckSlot, stuck_slots
from nodeagent.features.slots.objects import read_objects
from nodeagent.features.slots.reasons import SlotReason
from nodeagent.host.clock import SystemClock

DEGRADED: Final = 1
WAITING: Final = 4
# Names in a line.
SHOWN: Final = 10
# Nodes with a line of their own without --all, and lines of groups in their place: two screens in all.
NODES: Final = 20
GROUPS: Final = 20
# Names in the line of a group, and characters of a message.
NAMES: Final = 3
WIDTH: Final = 100
COUNTS: Final = ("updated", "updating", "pending", "degraded")
STYLES: Final = {"degraded": BAD, "updating": WARN, "updated": GOOD}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/fleet/v1)")
    every_node = f"each node, and all of each Node: also where more than {NODES} need attention"
    parser.add_argument("--all", action="store_true", help=every_node)
    add_access(parser)
    leases = "where the node leases are (medik8s-leases)"
    parser.add_argument("--lease-namespace", default="medik8s-leases", metavar="NAME", help=leases)


def run(args: argparse.Namespace) -> int:
    """Return 0 if every node of every pool runs its desired config, 1 if a node is degraded, 4 if nodes are pending or
    updating, also in a paused pool."""
    seen, unknown = with_cluster(
        args,
        lambda client: read_objects(client, SystemClock(), namespace=args.lease_namespace, whole=args.all),
        role="fleet-viewer.yaml",
    )
    fleet = rollout_of(seen)
    # An empty fleet would be complete, which a script takes for the end of an upgrade.
    if not any(pool.members for pool in fleet.pools):
        raise Refused(
            "no node of this cluster is in a pool or has a desired config",
            reason=SlotReason.NO_FLEET,
            hint="is it the right cluster? (--kubeconfig, --context)",
        )
    stuck = stuck_slots(seen.slots, {node["metadata"]["name"]: node for node in seen.nodes}, fleet, seen.now)
    if args.json:
        emit(rollout_to_dict(fleet, unknown, stuck))
    else:
        _describe(fleet, unknown, stuck, every=args.all)
    if fleet.complete:
        return 0
    # A script waits for nodes that only need time, and calls an operator for a degraded one.
    return DEGRADED if fleet.degraded else WAITING


def _describe(fleet: Rollout, unknown: Sequence[str], stuck: Sequence[StuckSlot], *, every: bool) -> None:
    headers = ["POOL", "CONFIG", "NODES", *(word.upper() for word in COUNTS), "FLAGGED", "STATE"]
    table(headers, [_row(pool) for pool in fleet.pools], right=range(2, 8))
    rows = list(_members(fleet))
    if rows and (every or len(rows) <= NODES):
        print()
        table(["NODE", "POOL", "PROGRESS", "CONFIG", "WHY"], rows)
    elif rows:
        print()
        _describe_groups(groups(fleet))
    if stuck:
        print()
        table(["SLOT", "HOLDER", "SINCE", "WHY", "TO FREE IT"], [_slot_row(slot) for slot in stuck])
    if lines := list(_lines(fleet, unknown)):
        print()
        print("\n".join(lines))


def _describe_groups(groups: Sequence[Group]) -> None:
    shown, others = groups[:GROUPS], groups[GROUPS:]
    table(["COUNT", "POOL", "PROGRESS", "CONFIG", "WHY", "NODES"], [_group_row(group) for group in shown], right=[0])
    nodes = sum(len(group.members) for group in others)
    rest = f"{counted(nodes, 'more node')} with {counted(len(others), 'other reason')}; " if others else ""
    print(f"\n{rest}--all lists each node")


def _group_row(group: Group) -> list[str]:
    names = enumerated((member.name for member in group.members), NAMES)
    progress = paint(str(group.progress), STYLES.get(group.progress, ""))
    why_all = group.why if len(group.why) <= WIDTH else f"{group.why[:WIDTH]}…"
    return [str(len(group.members)), group.pool, progress, printable(group.configs), printable(why_all), names]


def _row(pool: PoolRollout) -> list[str]:
    counts = [str(sum(member.progress == word for member in pool.members)) for word in COUNTS]
    words = [paint("complete", GOOD) if pool.complete else paint("not complete", WARN)]
    if pool.paused:
        words.append(paint("paused", WARN))
    target = pool.target or ("each its own" if pool.members else "-")
    return [
        printable(pool.name),
        printable(target),
        str(len(pool.members)),
        *counts,
        str(len(pool.flagged)),
        ", ".join(words),
    ]


def _slot_row(slot: StuckSlot) -> list[str]:
    return [printable(cell) for cell in (slot.name, slot.node, slot.since, slot.why, slot.command)]


def _members(fleet: Rollout) -> Iterator[list[str]]:
    for pool in fleet.pools:
        for member in attention(pool):
            progress = paint(str(member.progress), STYLES.get(member.progress, ""))
            yield [member.name, pool.name, progress, printable(configs(member)), printable(why(member))]


def _lines(fleet: Rollout, unknown: Sequence[str]) -> Iterator[str]:
    for pool in fleet.pools:
        yield from (paint(f"pool {pool.name}: {printable(trouble)}", BAD) for trouble in pool.troubles)
    if paused := [pool.name for pool in fleet.pools if pool.paused]:
        yield paint(f"paused: {', '.join(paused)}", WARN)
    if fleet.unmanaged:
        yield f"in no pool: {enumerated(fleet.unmanaged, SHOWN)}"
    for what in unknown:
        yield f"not known, so flags may be missing: {printable(what)}"
    if fleet.complete:
        yield paint("every node of every pool runs what it should", GOOD)
        return
    left = sum(not pool.complete for pool in fleet.pools)
    yield paint(f"{left} of {counted(len(fleet.pools), 'pool')} {'is' if left == 1 else 'are'} not complete", WARN)
