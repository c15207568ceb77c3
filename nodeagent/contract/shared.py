# SPDX-License-Identifier: Apache-2.0
"""Objects that occur in several answers."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from nodeagent.contract.keys import Keys, about
from nodeagent.core.plan.change import ActionType
from nodeagent.core.plan.os_changes import PackageChangeKind

Disruption = Literal["none", "reload", "restart", "drain", "reboot"]


class Lease(Keys):
    backend: Annotated[str, about("where the lease is kept: local, kubernetes, or another backend")]
    holder: Annotated[str, about("who holds it")]
    operation: Annotated[str, about("the id of the update that holds it, or maintenance for an operator")]
    reason: Annotated[str, about("why it is held, in the words of the holder")]
    since: Annotated[str, about("RFC 3339; empty if it is not known")]
    expires: Annotated[str, about("RFC 3339; empty for a lease without an end")]


class Action(Keys):
    type: Annotated[ActionType, about("what is done")]
    unit: Annotated[str, about("the unit, or namespace/name of a static pod; only if there is one")] | UnsetType = UNSET
    paths: Annotated[list[str], about("files that a ClearState removes, or manifests")] | UnsetType = UNSET


class Detail(Keys):
    what: Annotated[
        str,
        about(
            "content, mode, owner, group, state, drop-in NAME, replaces, argument, order, extension, key, password, "
            "image, kernel, type, or from (the MachineConfigs that the entry was merged from)"
        ),
    ]
    before: Annotated[str, about("the value before; absent without one")] | UnsetType = UNSET
    after: Annotated[str, about("the value after; absent without one")] | UnsetType = UNSET
    added: (
        Annotated[int | None, about("lines that were added; null or absent if lines were not counted")] | UnsetType
    ) = UNSET
    removed: Annotated[int | None, about("lines that were removed, likewise")] | UnsetType = UNSET


class Package(Keys):
    name: Annotated[str, about("its name")]
    kind: Annotated[PackageChangeKind, about("how it changes")]
    before: Annotated[str, about("version (EVR); empty if it is added")]
    after: Annotated[str, about("version (EVR); empty if it is removed")]


class PackageCounts(Keys):
    added: Annotated[int, about("packages")]
    removed: Annotated[int, about("packages")]
    upgraded: Annotated[int, about("packages")]
    downgraded: Annotated[int, about("packages")]


class FileCounts(Keys):
    added: Annotated[int, about("files")]
    removed: Annotated[int, about("files")]
    changed: Annotated[int, about("files")]


class Kernel(Keys):
    before: Annotated[str, about("version of the booted deployment")]
    after: Annotated[str, about("version of the staged deployment")]


class KernelArguments(Keys):
    added: Annotated[list[str], about("arguments that only the staged deployment has")]
    removed: Annotated[list[str], about("arguments that only the booted deployment has")]


class OsChanges(Keys):
    """The staged deployment against the booted one. What cannot be read is null."""

    staged: Annotated[str, about("id of the deployment")]
    summary: Annotated[str, about("all of it in one line")]
    counts: Annotated[PackageCounts | None, about("number of packages by kind; null without a package database")]
    packages: Annotated[list[Package] | None, about("the first 200 packages that differ")]
    files: Annotated[FileCounts | None, about("without a package database: files below /usr")]
    kernel: Annotated[Kernel | None, about("versions of the kernel")]
    same_initramfs: Annotated[bool | None, about("whether the initramfs is the same")]
    same_selinux_policy: Annotated[bool | None, about("whether the SELinux policy is the same")]
    kernel_arguments: Annotated[KernelArguments, about("kernel arguments that differ")]
    merged: Annotated[
        list[str] | None,
        about(
            "the first 200 managed files that the merge of /etc replaces with those of the new OS, because they equal "
            "the old default; nodeagent writes them again after the boot"
        ),
    ]
    merged_count: Annotated[int | None, about("how many these are")]
    fetched_bytes: Annotated[
        int | None,
        about(
            "bytes pulled for it, of a container image the sizes of the fetched layers to three digits; null if all "
            "was there, and after a restart of nodeagent"
        ),
    ]


class Problem(Keys):
    topic: Annotated[str, about("settings, policy, store, config, sweep, etcd, and others")]
    reason: Annotated[str, about("a reason")]
    message: Annotated[str, about("what is wrong")]


class Wrong(Keys):
    path: Annotated[str, about("the key or the file that is wrong; may be empty")]
    message: Annotated[str, about("what is wrong")]


class Difference(Keys):
    entry: Annotated[str, about("an entry of a config, as file:/etc/hosts or unit:crio.service")]
    why: Annotated[str, about("how it differs, without its content; or why it cannot be compared")]


class Blocked(Keys, rename={"for_": "for"}):
    change: Annotated[str, about("an entry of the config that is not applied yet")]
    for_: Annotated[str, about("what it waits for")]
