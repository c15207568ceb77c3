# SPDX-License-Identifier: Apache-2.0
"""The MachineConfig and Ignition schemas as types, for specification 3.

Each field is optional here, because null and absent mean the same in these schemas; the readers report a missing value.
A key that is not listed is an error. ``Any`` marks sections that are compared and never applied.
"""

from __future__ import annotations

from typing import Any

import msgspec

Entries = list[dict[str, Any]]


class _Object(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    """An object without other keys. JSON has no cycles, so the garbage collector tracks none of the thousands."""


class Owner(_Object):
    id: int | None = None
    name: str | None = None


class Verification(_Object):
    hash: str | None = None


class Contents(_Object):
    source: str | None = None
    compression: str | None = None
    verification: Verification | None = None
    http_headers: list[Any] | None = None


class File(_Object):
    path: str | None = None
    contents: Contents | None = None
    # JSON has no octal numbers: 420 is 0644.
    mode: int | None = None
    overwrite: bool | None = None
    user: Owner | None = None
    group: Owner | None = None
    # Compared only, as the headers are: what is appended twice would be there twice.
    append: list[Any] | None = None


class IgnitionDirectory(_Object):
    path: str | None = None
    mode: int | None = None
    # Compared only: it would delete what is in the directory.
    overwrite: bool | None = None
    user: Owner | None = None
    group: Owner | None = None


class IgnitionLink(_Object):
    path: str | None = None
    target: str | None = None
    # Compared only.
    hard: bool | None = None
    overwrite: bool | None = None
    user: Owner | None = None
    group: Owner | None = None


class Dropin(_Object):
    name: str | None = None
    contents: str | None = None


class Unit(_Object):
    name: str | None = None
    contents: str | None = None
    enabled: bool | None = None
    mask: bool | None = None
    dropins: list[Dropin] | None = None


class Storage(_Object):
    files: list[File] | None = None
    directories: list[IgnitionDirectory] | None = None
    disks: Entries | None = None
    filesystems: Entries | None = None
    links: list[IgnitionLink] | None = None
    luks: Entries | None = None
    raid: Entries | None = None


class SystemdSection(_Object):
    units: list[Unit] | None = None


class Passwd(_Object):
    users: Entries | None = None
    groups: Entries | None = None


class CoreUser(msgspec.Struct, rename="camel"):
    """The applied keys of the user core; the other keys are compared only."""

    name: str | None = None
    password_hash: str | None = None
    ssh_authorized_keys: list[str] | None = None


class User(_Object):
    """A user other than core."""

    name: str | None = None
    password_hash: str | None = None
    ssh_authorized_keys: list[str] | None = None
    gecos: str | None = None
    groups: list[str] | None = None
    home_dir: str | None = None
    no_create_home: bool | None = None
    no_log_init: bool | None = None
    no_user_group: bool | None = None
    primary_group: str | None = None
    shell: str | None = None
    should_exist: bool | None = None
    system: bool | None = None
    uid: int | None = None


class IgnitionSection(_Object):
    version: str | None = None
    config: Any = None
    proxy: Any = None
    security: Any = None
    timeouts: Any = None


class KernelArguments(_Object):
    should_exist: list[str] | None = None
    should_not_exist: list[str] | None = None


class Config(_Object):
    """An Ignition config."""

    ignition: IgnitionSection | None = None
    storage: Storage | None = None
    systemd: SystemdSection | None = None
    passwd: Passwd | None = None
    kernel_arguments: KernelArguments | None = None


class Metadata(msgspec.Struct):
    """The metadata that matter to a host."""

    name: str | None = None


class Spec(_Object):
    config: Config | None = None
    # The renaming to camel case would give baseOsExtensionsContainerImage and osImageUrl.
    base_os_extensions_container_image: str | None = msgspec.field(default=None, name="baseOSExtensionsContainerImage")
    extensions: list[str] | None = None
    fips: bool | None = None
    kernel_arguments: list[str] | None = None
    kernel_type: str | None = None
    os_image_url: str | None = msgspec.field(default=None, name="osImageURL")


class Document(_Object):
    """A MachineConfig object. ``status`` is an observation of the cluster and is ignored."""

    api_version: str | None = None
    kind: str | None = None
    # Not ``Metadata``: labels and annotations are dropped only after they were checked for values that JSON cannot
    # hold.
    metadata: dict[str, Any] | None = None
    spec: Spec | None = None
    status: Any = None
