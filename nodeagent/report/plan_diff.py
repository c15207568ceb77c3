# SPDX-License-Identifier: Apache-2.0
"""The changed texts of a plan as unified diffs, without secrets and of bounded size.

Both sides are redacted whole, by the rules of the journal, before they are compared: a line of a hunk alone would not
show that it is part of a private key. A change of a secret is therefore no line of the diff, and is named in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from difflib import unified_diff
from itertools import islice
from typing import Final

from nodeagent.core.config.file_tree import Directory, FileTreeEntry, RegularFile, SymbolicLink, expand, node_of
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.change import Change, Plan
from nodeagent.core.plan.entries import entries_by_path
from nodeagent.core.plan.plan_values import NO_DISK, Disk, binary
from nodeagent.core.redact import redact
from nodeagent.core.validate.certificates import named

# Bytes and lines of one side; larger files have no diff.
MAX_BYTES: Final = 256 * 1024
MAX_LINES: Final = 2000
# Lines of one diff, characters of a line, and characters of all diffs of a plan.
MAX_SHOWN: Final = 400
MAX_WIDTH: Final = 500
MAX_TOTAL: Final = 1024 * 1024

NOTHING: Final = "/dev/null"


def diffs(
    plan: Plan, old: MachineConfig, new: MachineConfig, disk: Disk | None = None, restored: Disk = NO_DISK
) -> dict[str, str]:
    """Return the diffs by the ids of the changes; changes without a text to compare are left out.

    ``restored`` as for ``with_values``.
    """
    by_change: dict[str, str] = {}
    total = 0
    for change in (planned.change for planned in plan.changes):
        before, after = _part(old, change), _part(new, change)
        # The old side is what the host has: where it differs from the old config, that is what the update replaces.
        before = {**before, **{path: disk[path] for path in {*before, *after} if disk and path in disk}}
        after = {**{path: restored[path] for path in before if path in restored}, **after}
        if total >= MAX_TOTAL and (before or after):
            by_change[change.id] = "the diff is not shown: those before it are too long\n"
            continue
        text = "".join(_compare(path, before.get(path), after.get(path)) for path in sorted({*before, *after}))
        if text:
            by_change[change.id] = text
            total += len(text)
    return by_change


def drift_diffs(config: MachineConfig, entries: Collection[str], disk: Disk) -> dict[str, str]:
    """Return what was changed in these entries of files and units, from the config to the host, by their ids.

    ``disk`` has the entries of the host by path; a path that it lacks is missing there.
    """
    by_entry: dict[str, str] = {}
    wanted, total = expand(config), 0
    for path, entry in sorted(entries_by_path(config).items()):
        # Keys of users have no diff, as in a plan.
        if entry not in entries or not entry.startswith(("file:", "unit:")) or total >= MAX_TOTAL:
            continue
        if text := _compare(path, wanted.get(path), disk.get(path)):
            by_entry[entry] = by_entry.get(entry, "") + text
            total += len(text)
    return by_entry


def _part(config: MachineConfig, change: Change) -> Mapping[str, FileTreeEntry]:
    """Return the paths of one changed file or unit. Keys of users are shown as fingerprints, and have no diff."""
    if change.domain == "file" and (entry := config.storage.get(change.key)) is not None:
        return {change.key: node_of(entry)}
    if change.domain == "unit" and change.key in config.units:
        return expand(MachineConfig("", units={change.key: config.units[change.key]}))
    return {}


def _compare(path: str, before: FileTreeEntry | None, after: FileTreeEntry | None) -> str:
    was, now = _content(before), _content(after)
    if was == now:
        return ""
    names = [path if side is not None else NOTHING for side in (before, after)]
    head = f"--- {names[0]}\n+++ {names[1]}\n"
    if binary(was) or binary(now):
        return f"{head}binary content differs: {len(was)} bytes, then {len(now)}\n"
    if max(len(was), len(now)) <= MAX_BYTES:
        # A certificate is public, and its base64 is nothing that an operator could read.
        was, now = named(was), named(now)
    if max(len(was), len(now)) > MAX_BYTES or max(was.count(b"\n"), now.count(b"\n")) > MAX_LINES:
        return f"{head}too large for a diff: {len(was)} bytes, then {len(now)}\n"
    first, second = (redact(side.decode(errors="replace")).splitlines() for side in (was, now))
    # The first two lines are headers without names. One line more than the bound shows that there is a rest.
    shown = [*islice(unified_diff(first, second, lineterm=""), 2, MAX_SHOWN + 3)]
    text = "".join(f"{line[:MAX_WIDTH]}{' [cut]' if len(line) > MAX_WIDTH else ''}\n" for line in shown[:MAX_SHOWN])
    if len(shown) > MAX_SHOWN:
        return f"{head}{text}the rest of the diff is not shown: it has more than {MAX_SHOWN} lines\n"
    if not text:
        return f"{head}only hidden values or line endings differ\n"
    added = (Counter(now.splitlines()) - Counter(was.splitlines())).total()
    # Lines that differ in hidden text only are equal after the redaction, so no line of the diff stands for them.
    hidden = added > sum(line.startswith("+") for line in shown)
    return head + text + ("hidden values differ, too\n" if hidden else "")


def _content(entry: FileTreeEntry | None) -> bytes:
    """Return the content; for a link, its target in words."""
    match entry:
        case None:
            return b""
        case RegularFile():
            return entry.content
        case SymbolicLink():
            return f"(link to {entry.target})\n".encode()
        case Directory():
            return b""
