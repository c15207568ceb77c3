# SPDX-License-Identifier: Apache-2.0
"""The plan of an update. Features add their keys to ``Plan``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from nodeagent.contract.keys import Keys, about
from nodeagent.contract.shared import Action, Detail, Disruption, OsChanges, Problem, Wrong
from nodeagent.core.plan.change import ChangeKind, PolicySource


class PlannedAction(Action, kw_only=True):
    because: Annotated[list[str], about("the entries that need it")]


class KeyChange(Keys):
    document: Annotated[str, about("the path or the unit of the entry that brings the difference")]
    key: Annotated[str, about("the key")]
    before: Annotated[str, about("JSON; empty if the key is not set, (not shown) for what may be a secret")]
    after: Annotated[str, about("JSON, likewise")]
    actions: Annotated[list[Action], about("what it needs")]
    why: Annotated[str, about("why it needs that")] | UnsetType = UNSET
    next_start: Annotated[str, about("the unit from whose next start it counts")] | UnsetType = UNSET


class Change(Keys):
    domain: Annotated[str, about("file, unit, sshkey, password, or a field of the OS")]
    key: Annotated[str, about("the path, the unit or the user")]
    change: Annotated[ChangeKind, about("how the entry changes")]
    policy: Annotated[
        PolicySource,
        about("whose entry of the policy decides: default: a built-in one, user: one of the admin, none: unlisted"),
    ]
    actions: Annotated[list[Action], about("what the change needs")]
    why: Annotated[str, about("why, if a rule compared the contents")] | UnsetType = UNSET
    avoids_reboot: Annotated[bool, about("true if an entry of the admin replaces a reboot")] | UnsetType = UNSET
    keys: Annotated[list[KeyChange], about("up to 200 keys of the file that differ")] | UnsetType = UNSET
    details: Annotated[list[Detail], about("up to 50 properties that differ")] | UnsetType = UNSET
    diff: Annotated[str, about("with --diff: the unified diff as text")] | UnsetType = UNSET


class Counts(Keys):
    added: Annotated[int, about("entries")]
    changed: Annotated[int, about("entries")]
    removed: Annotated[int, about("entries")]
    total: Annotated[int, about("entries of the config before")]


class Reboot(Keys):
    kind: Annotated[Literal["soft", "full", "undecided"], about("undecided: known when the OS is staged")]
    why: Annotated[str, about("why this kind")] | UnsetType = UNSET
    reason: Annotated[str, about("the same as a reason")] | UnsetType = UNSET
    because: Annotated[list[str], about("the entries that need the start of a kernel")] | UnsetType = UNSET
    saves_seconds: (
        Annotated[
            float,
            about(
                "for another OS: how long firmware, boot loader, kernel and initramfs took at the last start of the "
                "kernel, if systemd knows it"
            ),
        ]
        | UnsetType
    ) = UNSET


class GroupDetail(Detail, kw_only=True):
    count: Annotated[int, about("the changes that have it")]


class Group(Keys):
    what: Annotated[str, about("what its changes have in common, as 266 files below /etc/x")]
    changes: Annotated[list[str], about("their ids: domain, colon, key")]
    details: Annotated[list[GroupDetail], about("how they differ; lines are summed")]


class Removal(Keys):
    removed: Annotated[int, about("entries of the current config that the new one lacks")]
    total: Annotated[int, about("entries of the current config")]
    part: Annotated[bool, about("whether the new config looks like a part of one")] | UnsetType = UNSET


class UnitWarning(Keys):
    entry: Annotated[str, about("the unit")]
    message: Annotated[str, about("why its entry has no effect")]


class Rejected(Keys):
    since: Annotated[str, about("RFC 3339; empty for a rollback")]
    why: Annotated[str, about("what happened")]
    reason: Annotated[str, about("ConfigRejected, Cancelled or RolledBack")]


class Drift(Keys):
    entry: Annotated[str, about("an entry that differs from the current config")]
    why: Annotated[str, about("how")]
    then: Annotated[Literal["kept", "overwritten", "wanted"], about("what the update does with it")]


class Plan(Keys, rename={"from_": "from"}):
    schema: Annotated[Literal["nodeagent/plan/v1"], about("the schema of this object")]
    from_: Annotated[str, about("name of the config before; empty without one")]
    to: Annotated[str, about("name of the new config")]
    changes: Annotated[list[Change], about("every entry that differs")]
    actions: Annotated[list[PlannedAction], about("the actions of all changes, in their order")]
    drain: Annotated[bool, about("whether the node is drained")]
    disruption: Annotated[Disruption, about("the strongest action")]
    counts: Annotated[Counts, about("entries by kind")]
    fallback: (
        Annotated[Reboot, about("on a host, if an action may fail: the kind of the reboot that would follow")]
        | UnsetType
    ) = UNSET
    reboot: Annotated[Reboot, about("on a host, if the plan has a reboot: its kind")] | UnsetType = UNSET
    notes: Annotated[list[str], about("on a host: warnings, and what else an operator should know")] | UnsetType = UNSET
    by_cluster: (
        Annotated[bool, about("on a host: the cluster applies configs, nodeagent apply is refused")] | UnsetType
    ) = UNSET
    in_cluster: Annotated[bool, about("on a host; without a cluster, a drain moves nothing")] | UnsetType = UNSET
    groups: (
        Annotated[list[Group], about("on a host: the rows of a long plan that stand for several changes")] | UnsetType
    ) = UNSET
    removal: Annotated[Removal, about("on a host: how much leaves; more than half has to be confirmed")] | UnsetType = (
        UNSET
    )
    unit_warnings: (
        Annotated[
            list[UnitWarning],
            about("on a host: entries of units that exist nowhere, or that systemd does not enable"),
        ]
        | UnsetType
    ) = UNSET
    rejected: (
        Annotated[
            Rejected,
            about(
                "on a host: this host took the config back, its update was cancelled, or an operator rolled it back. "
                "It is applied again on request only"
            ),
        ]
        | UnsetType
    ) = UNSET
    drift: Annotated[list[Drift], about("on a host: entries that differ from the current config")] | UnsetType = UNSET
    drifted: Annotated[list[str], about("on a host: entries that the update leaves as they are")] | UnsetType = UNSET
    daemon: (
        Annotated[Literal["running", "stopped"], about("on a host; stopped: the plan is from the store")] | UnsetType
    ) = UNSET
    problems: Annotated[list[Problem], about("without the daemon: what it would show in its status")] | UnsetType = (
        UNSET
    )
    staged: (
        Annotated[bool, about("with --stage: whether the update needs another OS, which is staged now")] | UnsetType
    ) = UNSET
    os: Annotated[OsChanges, about("on a host where the OS of this config is staged: what it changes")] | UnsetType = (
        UNSET
    )
    warnings: Annotated[list[Wrong], about("with --from and --to: doubts about the new config")] | UnsetType = UNSET
