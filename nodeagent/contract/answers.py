# SPDX-License-Identifier: Apache-2.0
"""The answers of the other commands. Features add the keys that delay an update to ``Apply``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, UnsetType

from nodeagent.contract.keys import Keys, about
from nodeagent.contract.shared import Action, Difference, Lease, Wrong
from nodeagent.core.plan.change import PolicySource


class Error(Keys):
    """On standard error, with an exit status that is not 0."""

    schema: Annotated[Literal["nodeagent/error/v1"], about("the schema of this object")]
    reason: Annotated[str, about("a reason")]
    message: Annotated[str, about("what happened")]
    errors: Annotated[list[Wrong], about("each problem with its place")]
    hint: Annotated[str, about("what to do next")] | UnsetType = UNSET
    documentation: Annotated[str, about("address of the page about the reason")] | UnsetType = UNSET


class Ended(Keys):
    outcome: Annotated[
        str, about("accepted without --wait; else how the update ended, as in the history, or unchanged, postponed")
    ]
    reason: Annotated[str, about("why it ended so; empty for none")]
    message: Annotated[str, about("the reason in words")]


class Counted(Ended):
    seconds: Annotated[float | None, about("length of the update; null without one")]
    reboots: Annotated[int, about("reboots that the agent requested")]
    boots: Annotated[int, about("boots during the update, whatever their cause")]


class Apply(Counted):
    schema: Annotated[Literal["nodeagent/apply/v1"], about("the schema of this object")]
    config: Annotated[str, about("name of the config")]
    digest: Annotated[str, about("SHA-256 of its text")]
    reboot_avoided: Annotated[bool, about("whether the policy of the admin replaced a reboot")]
    successor: Annotated[str, about("the config that replaced it; empty for none")]
    no_reboot: Annotated[bool, about("whether its reboot is held back")]


class Rollback(Counted):
    schema: Annotated[Literal["nodeagent/rollback/v1"], about("the schema of this object")]
    config: Annotated[str, about("name of the config before the current one")]
    successor: Annotated[str, about("the config that replaced it; empty for none")]


class Cancel(Counted):
    schema: Annotated[Literal["nodeagent/cancel/v1"], about("the schema of this object")]
    config: Annotated[str, about("name of the cancelled config")]
    digest: Annotated[str, about("SHA-256 of its text")]
    update_id: Annotated[str, about("id of the cancelled update; empty for a staging")]
    effect: Annotated[
        Literal["end", "revert", "reverting", "staging"],
        about("whether the update ends, is taken back, was being taken back, or was the staging of a plan"),
    ]
    applied: Annotated[int, about("its changes that had been applied before")]
    current: Annotated[str, about("name of the current config")]
    desired_by: Annotated[Literal["file", "cluster"], about("who says which config is desired")]
    reboot: (
        Annotated[str, about("the requested reboot that was cancelled; absent for an update of the config")] | UnsetType
    ) = UNSET


class Reboot(Ended):
    schema: Annotated[Literal["nodeagent/reboot/v1"], about("the schema of this object")]
    config: Annotated[str, about("name of the config whose update goes on; empty if none waited")]
    digest: Annotated[str, about("SHA-256 of its text")]
    update_id: Annotated[str, about("id of the update")]


class Drifted(Difference):
    diff: Annotated[str, about("with --diff: from the config to the host, as a unified diff")] | UnsetType = UNSET


class Verify(Keys):
    schema: Annotated[Literal["nodeagent/verify/v1"], about("the schema of this object")]
    config: Annotated[str, about("name of the current config")]
    ok: Annotated[bool, about("whether the host is as the config says")]
    drift: Annotated[list[Drifted], about("entries that differ")]
    not_compared: Annotated[list[Difference], about("entries that cannot be compared")]
    waits: Annotated[list[str], about("entries of a blocked config that wait, which is no drift")] | UnsetType = UNSET


class LeaseAnswer(Keys):
    schema: Annotated[Literal["nodeagent/lease/v1"], about("the schema of this object")]
    lease: Annotated[Lease | None, about("null if it is free")]


class MachineConfig(Keys):
    schema: Annotated[Literal["nodeagent/machineconfig/v1"], about("the schema of this object")]
    name: Annotated[str, about("name of the config")]
    digest: Annotated[str, about("SHA-256 of its text")]
    config: Annotated[dict[str, Any], about("the MachineConfig, with [redacted] for values that may be secrets")]
    hidden: Annotated[list[str], about("the places of these values; empty with --show-secrets")]


class Setting(Keys, rename={"from_": "from"}):
    value: Annotated[Any, about("its value")]
    from_: Annotated[str, about("the file that has it, or default")]


class SettingsShown(Keys):
    schema: Annotated[Literal["nodeagent/config/v1"], about("the schema of this object")]
    settings: Annotated[dict[str, Setting], about("each setting by its name, as reboot.allow")]
    files: Annotated[list[str], about("the files that were read, in their order")]


class CheckedFile(Keys):
    what: Annotated[str, about("settings, policy PATH or desired config PATH")]
    problems: Annotated[list[Wrong], about("what has to be corrected")]
    notes: Annotated[list[Wrong], about("what may be meant otherwise")]
    skipped: Annotated[str, about("why it was not checked; empty if it was")]


class SettingsChecked(Keys):
    schema: Annotated[Literal["nodeagent/config-check/v1"], about("the schema of this object")]
    ok: Annotated[bool, about("whether no file has a problem")]
    files: Annotated[list[CheckedFile], about("each file that was checked")]


class Component(Keys):
    name: Annotated[str, about("its name")]
    version: Annotated[str, about("its version; empty if it is not known")]
    license: Annotated[str, about("SPDX expression")]
    origin: Annotated[str, about("what it was made of, as a URL or a package URL")]


class Version(Keys):
    schema: Annotated[Literal["nodeagent/version/v1"], about("the schema of this object")]
    version: Annotated[str, about("of this program")]
    daemon: Annotated[str, about("of the running daemon; empty if none answers")]
    python: Annotated[str, about("with --verbose: version of the interpreter")] | UnsetType = UNSET
    interpreter: Annotated[str, about("with --verbose: origin of the interpreter; empty if unknown")] | UnsetType = (
        UNSET
    )
    components: (
        Annotated[list[Component], about("with --verbose: what the package contains; empty for a wheel")] | UnsetType
    ) = UNSET


class Shadowed(Keys):
    entry: Annotated[str, about("the entry")]
    policy: Annotated[PolicySource, about("whose it is")]


class Explain(Keys, rename={"from_": "from"}):
    """About a path, a unit, a user, or a field of a config."""

    schema: Annotated[Literal["nodeagent/explain/v1"], about("the schema of this object")]
    domain: Annotated[str, about("file, unit, user, sshkey, password, another field of a config, or reason")]
    key: Annotated[str, about("the path, the unit, the user, the field or the reason")]
    policy: Annotated[PolicySource, about("whose entry decides; none: unlisted")] | UnsetType = UNSET
    entry: Annotated[str | None, about("the entry; null for none")] | UnsetType = UNSET
    match: Annotated[str | None, about("how the entry covers it; null for none")] | UnsetType = UNSET
    file: Annotated[str | None, about("the file with the entry; null if it is built in")] | UnsetType = UNSET
    actions: Annotated[list[Action] | None, about("what a change needs; null if a rule decides")] | UnsetType = UNSET
    rule: Annotated[str | None, about("the rule that decides by content; null for none")] | UnsetType = UNSET
    replaces: Annotated[bool, about("whether the entry replaces one that is built in")] | UnsetType = UNSET
    shadowed: Annotated[list[Shadowed], about("entries that it takes precedence over")] | UnsetType = UNSET
    reason: Annotated[str, about("why the entry decides")] | UnsetType = UNSET
    recommended: (
        Annotated[list[Action] | None, about("actions of the recommended policy for what has no entry")] | UnsetType
    ) = UNSET
    recommended_rule: Annotated[str | None, about("its rule, likewise")] | UnsetType = UNSET
    policy_file: Annotated[str | None, about("the policy that was read; null for none")] | UnsetType = UNSET
    from_: (
        Annotated[list[str], about("the MachineConfigs of the desired config that have the entry; empty for none")]
        | UnsetType
    ) = UNSET
    meaning: Annotated[str, about("of a reason: what it means")] | UnsetType = UNSET
    hint: Annotated[str, about("of a reason: what to do")] | UnsetType = UNSET
    documentation: Annotated[str, about("of a reason: address of its page")] | UnsetType = UNSET


class Other(Keys):
    change: Annotated[str, about("the change")]
    why: Annotated[str, about("why no entry avoids its disruption")]


class PolicySuggest(Keys):
    schema: Annotated[Literal["nodeagent/policy-suggest/v1"], about("the schema of this object")]
    update: Annotated[str, about("name of the config whose plan was read; empty for none")]
    avoidable: Annotated[bool, about("whether the entries avoid every drain and reboot of that plan")]
    entries: Annotated[
        list[dict[str, Any]], about("entries as a nodeDisruptionPolicy has them, each with path and actions")
    ]
    others: Annotated[list[Other], about("changes without such an entry")]
    more: Annotated[int, about("changes that the history leaves out")]


class CheckedPolicy(Keys):
    file: Annotated[str, about("the policy")]
    entries: Annotated[int, about("entries of the policy; 0 if it is invalid")]
    problems: Annotated[list[Wrong], about("what has to be corrected")]
    notes: Annotated[list[Wrong], about("what is valid and perhaps not meant, by the key of the entry")]
    extensions: Annotated[list[Wrong], about("what a cluster refuses or takes otherwise, by the key of the entry")]


class PolicyCheck(Keys):
    schema: Annotated[Literal["nodeagent/policy-check/v1"], about("the schema of this object")]
    files: Annotated[list[CheckedPolicy], about("each policy, the weakest first")]


class EtcdSnapshot(Keys):
    schema: Annotated[Literal["nodeagent/etcd-snapshot/v1"], about("the schema of this object")]
    path: Annotated[str, about("the file")]
    size: Annotated[int, about("in bytes")]
    sha256: Annotated[str, about("of the keyspace, as etcd computed it")]
    storage_version: Annotated[str, about("version of etcd that can read it; empty before 3.6")]
