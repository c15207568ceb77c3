# SPDX-License-Identifier: Apache-2.0
"""The rules for updates of the OS that the admin declares in a file, and the requirements that are built in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from nodeagent import typed
from nodeagent.core.config.text import document
from nodeagent.errors import InvalidInput, Refused
from nodeagent.features.update_graph.decide.release import VERSION, version_key
from nodeagent.features.update_graph.reasons import JumpReason

UPDATE_PATH: Final = "/etc/nodeagent/update-path.yaml"

Version = Annotated[str, Meta(pattern=VERSION)]
Why = Annotated[str, Meta(pattern=r"^[^\x00-\x1f]*$", max_length=500)]
# The digest of a container image, or the checksum of a commit.
Content = Annotated[str, Meta(pattern=r"^(sha256:)?[0-9a-f]{64}$")]
Argument = Annotated[str, Meta(pattern=r"^[^\s\x00-\x1f]{1,500}$")]
# Wildcards are allowed in the last part only, so that a pattern lists one directory.
FilePattern = Annotated[str, Meta(pattern=r"^(/[^/*?\[\]\x00-\x1f]+)*/[^/\x00-\x1f]+$", max_length=1000)]
CpuFlag = Annotated[str, Meta(pattern=r"^[a-z0-9_]{1,40}$")]
OsId = Annotated[str, Meta(pattern=r"^[a-z0-9._-]{1,40}$")]


class Barrier(Struct, frozen=True, forbid_unknown_fields=True):
    """A version that no update may skip."""

    version: Version
    reason: Why = ""


class Minimum(Struct, frozen=True, forbid_unknown_fields=True):
    """Versions from ``to`` on can be reached from versions from ``booted`` on."""

    to: Version
    booted: Version
    reason: Why = ""


class Requirement(Struct, frozen=True, forbid_unknown_fields=True):
    """What the host must have, or must not have, before it goes from a version below ``to`` to ``to`` or above.

    ``os``: values of ID in os-release to which it applies; empty for all. One of ``kernel_arguments``, ``files`` and
    ``cpu_flags`` says what is looked for; ``line`` is a whole line of one of the files, without regard to blanks.
    ``must``: have: all of them. not-have: none of them. ``then``: what an admin does about it.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
    to: Version
    must: Literal["have", "not-have"]
    then: Why
    os: Annotated[tuple[OsId, ...], Meta(max_length=20)] = ()
    kernel_arguments: Annotated[tuple[Argument, ...], Meta(max_length=50)] = ()
    files: Annotated[tuple[FilePattern, ...], Meta(max_length=20)] = ()
    line: Why = ""
    cpu_flags: Annotated[tuple[CpuFlag, ...], Meta(max_length=50)] = ()


class UpdatePath(Struct, frozen=True, forbid_unknown_fields=True):
    """The file of the admin.

    ``images``: versions of images by digest or checksum, so that they are known before a pull. ``skip``: names of
    built-in requirements that do not count.
    """

    barriers: Annotated[tuple[Barrier, ...], Meta(max_length=500)] = ()
    minimum: Annotated[tuple[Minimum, ...], Meta(max_length=500)] = ()
    requirements: Annotated[tuple[Requirement, ...], Meta(max_length=200)] = ()
    images: Annotated[Mapping[Content, Version], Meta(max_length=2000)] = {}
    skip: Annotated[tuple[str, ...], Meta(max_length=50)] = ()

    def all_requirements(self) -> tuple[Requirement, ...]:
        return (*(requirement for requirement in BUILT_IN if requirement.name not in self.skip), *self.requirements)


_EL: Final = ("rhel", "rhcos", "centos")
# All words that systemd reads as false.
_V1: Final = tuple(f"systemd.unified_cgroup_hierarchy={value}" for value in ("0", "no", "n", "false", "f", "off"))

# The facts: systemd 256, of Fedora 41, stops the boot with these arguments (its change 9ab93761c1002559dca515bcbc8a8c96
# is the way back); RHEL 10 has no runc (openshift/enhancements, block-runc-on-rhcos10-upgrade.md), is built for
# x86-64-v3, and its NetworkManager has no plugin ifcfg-rh.
BUILT_IN: Final = (
    Requirement(
        name="cgroup-v1",
        os=("fedora",),
        to="41",
        must="not-have",
        kernel_arguments=_V1,
        then="remove the kernel argument: systemd 256 does not boot with cgroup v1",
    ),
    Requirement(
        name="cgroup-v1-el10",
        os=_EL,
        to="10",
        must="not-have",
        kernel_arguments=_V1,
        then="remove the kernel argument: RHEL 10 has no cgroup v1",
    ),
    Requirement(
        name="runc-el10",
        os=_EL,
        to="10",
        must="not-have",
        files=("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"),
        line='default_runtime = "runc"',
        then="make crun the default runtime of CRI-O: RHEL 10 has no runc",
    ),
    Requirement(
        name="ifcfg-el10",
        os=_EL,
        to="10",
        must="not-have",
        # ifcfg-lo, the loopback device, needs no connection.
        files=(
            "/etc/sysconfig/network-scripts/ifcfg-[!l]*",
            "/etc/sysconfig/network-scripts/ifcfg-l[!o]*",
            "/etc/sysconfig/network-scripts/ifcfg-lo?*",
        ),
        then="convert it with nmcli connection migrate: NetworkManager of RHEL 10 does not read such files",
    ),
    Requirement(
        name="x86-64-v3-el10",
        os=_EL,
        to="10",
        must="have",
        # The level v3 of the x86-64 psABI, as the kernel names its flags: abm has LZCNT, and OSXSAVE is part of xsave.
        cpu_flags=("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"),
        then="stay below version 10: RHEL 10 does not run on this processor",
    ),
)


def parse_update_path(text: bytes) -> UpdatePath:
    """Raises ``Refused`` (``UpdatePathInvalid``)."""
    try:
        update_path = typed.convert(document.load(text, UPDATE_PATH), UpdatePath)
    except InvalidInput as error:
        raise Refused(error.message, reason=JumpReason.UPDATE_PATH_INVALID, problems=error.problems) from error
    except ValueError as error:
        raise _invalid(str(error)) from error
    for minimum in update_path.minimum:
        # Otherwise no host could ever reach it.
        if version_key(minimum.booted) >= version_key(minimum.to):
            raise _invalid(f"minimum: booted {minimum.booted} is not below to {minimum.to}")
    names = [requirement.name for requirement in (*BUILT_IN, *update_path.requirements)]
    for requirement in update_path.requirements:
        if names.count(requirement.name) > 1:
            raise _invalid(f"requirements: the name {requirement.name} is used twice, or built in")
        if [bool(requirement.kernel_arguments), bool(requirement.files), bool(requirement.cpu_flags)].count(True) != 1:
            raise _invalid(f"requirements: {requirement.name} needs one of kernel_arguments, files and cpu_flags")
        if requirement.line and not requirement.files:
            raise _invalid(f"requirements: {requirement.name} has a line, but no files")
    if unknown := [name for name in update_path.skip if name not in names[: len(BUILT_IN)]]:
        raise _invalid(f"skip: no built-in requirement has the name {unknown[0]}")
    return update_path


def _invalid(problem: str) -> Refused:
    return Refused(f"{UPDATE_PATH}: {problem}", reason=JumpReason.UPDATE_PATH_INVALID)
