# SPDX-License-Identifier: Apache-2.0
"""Deployments of the OS and the target of an update, as data.

A target is absolute where possible (the image, the packages), and a difference where the host has its own values
(kernel arguments: the installer and other tools set some, and those remain). The same target always leads to the same
deployment, so a retry after a crash needs no state of the first attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodeagent.core.config.image import ContainerImage, OsImage, OstreeCommit, image_to_text, parse_image
from nodeagent.core.config.kargs import line_of, merged
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.packages import NOT_IN_EACH_IMAGE, optional_of, packages_of, replaced_of

# The domains whose changes need a new deployment.
OS_DOMAINS = frozenset({"osImageURL", "kernelArguments", "kernelType", "extensions"})


@dataclass(frozen=True, slots=True)
class Deployment:
    """One entry of the boot order.

    ``checksum`` is that of the booted tree, ``base`` that of the image without layered packages. ``digest`` and
    ``image`` are those of a container, "" otherwise; ``origin`` is the refspec of an ostree commit. ``locked`` is None
    if it is unknown, or if the deployment is not staged.
    """

    id: str
    checksum: str
    osname: str
    base: str = ""
    version: str = ""
    image: str = ""
    digest: str = ""
    origin: str = ""
    packages: frozenset[str] = frozenset()
    # Packages of the base that were removed.
    removed: frozenset[str] = frozenset()
    # Those of its boot entry, or the future ones.
    kernel_arguments: tuple[str, ...] = ()
    booted: bool = False
    staged: bool = False
    pinned: bool = False
    # A program that reports no lock may know only those of older versions of libostree, so its silence does not mean
    # that a deployment is unlocked.
    locked: bool | None = None


@dataclass(frozen=True, slots=True)
class StagedLock:
    """The staged deployment as the files of libostree have it, with or without a program that serves deployments."""

    id: str
    locked: bool


@dataclass(frozen=True, slots=True)
class OsTarget:
    """The target of an update of the OS. ``image`` None keeps the booted one.

    Packages and kernel arguments are those to add and those to remove; others remain unchanged.
    """

    image: OsImage | None = None
    kernel_arguments: tuple[str, ...] = ()
    without_kernel_arguments: tuple[str, ...] = ()
    # Of both, those that the host has on its own: they remain.
    own_kernel_arguments: tuple[str, ...] = ()
    packages: frozenset[str] = frozenset()
    # Packages to add if they exist. A deployment without them meets the target.
    optional_packages: frozenset[str] = frozenset()
    without_packages: frozenset[str] = frozenset()
    # Packages of the base to remove, if it has them.
    removed: frozenset[str] = frozenset()
    # Packages of the base to restore.
    without_removed: frozenset[str] = frozenset()
    # Has packages that the repositories of the host lack.
    extensions_image: ContainerImage | None = None


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Progress of a staging: ``done`` of ``total`` parts of the current task, both 0 if it has no parts.

    ``fetched`` is in bytes, None if it is unknown.
    """

    task: str
    done: int = 0
    total: int = 0
    fetched: int | None = None


def target_between(old: MachineConfig, new: MachineConfig, own: Sequence[str] = ()) -> OsTarget | None:
    """Return the target of a change from ``old`` to ``new``, None if it needs no deployment.

    ``own`` are the kernel arguments of both that the host has on its own.
    """
    was, now = packages_of(old), packages_of(new)
    swapped, swaps = replaced_of(old), replaced_of(new)
    same_kargs = old.argument_rules == new.argument_rules
    if old.os_image_url == new.os_image_url and same_kargs and was == now and swapped == swaps:
        return None
    # Without packages to layer, the image of the extensions would be pulled for nothing.
    extensions = parse_image(new.extensions_image) if new.extensions_image and now else None
    image = parse_image(new.os_image_url) if new.os_image_url and new.os_image_url != old.os_image_url else None
    return OsTarget(
        image=image,
        # Unchanged ones are part of the target, because their order and their number matter.
        kernel_arguments=new.kernel_arguments,
        # What a config took away comes back where the host has it on its own.
        without_kernel_arguments=(*old.named_arguments, *new.absent_arguments),
        own_kernel_arguments=tuple(own),
        packages=now,
        optional_packages=optional_of(new),
        without_packages=(was | optional_of(old)) - now - optional_of(new),
        removed=swaps,
        without_removed=swapped - swaps,
        # Only containers have packages; a commit is the tree of an OS.
        extensions_image=extensions if isinstance(extensions, ContainerImage) else None,
    )


def unmet(target: OsTarget, deployment: Deployment) -> Mapping[str, str]:
    """Return how the deployment differs from the target, by domain; empty if it does not."""
    wrong: dict[str, str] = {}
    if target.image is not None and (mismatch := _other_image(target.image, deployment)):
        wrong["osImageURL"] = mismatch
    if mismatch := _other_kernel_arguments(target, deployment.kernel_arguments):
        wrong["kernelArguments"] = mismatch
    missing = [f"lacks {name}" for name in sorted(target.packages - deployment.packages)]
    left = [f"still has {name}" for name in sorted(target.without_packages & deployment.packages)]
    if missing or left:
        wrong["extensions"] = ", ".join([*missing, *left])
    # An image that never had such a package has nothing to remove.
    if not target.removed - NOT_IN_EACH_IMAGE <= deployment.removed or target.without_removed & deployment.removed:
        wrong["kernelType"] = "has another kernel"
    return wrong


def _other_image(image: OsImage, deployment: Deployment) -> str:
    match image:
        case ContainerImage():
            # The daemon omits the digest if it cannot read the metadata of an image; a pinned origin has it too.
            digest = deployment.digest or deployment.image.partition("@")[2]
            return "" if digest == image.digest else f"is {digest or deployment.base or deployment.checksum}"
        case OstreeCommit():
            return "" if image.checksum in (deployment.base, deployment.checksum) else f"is {deployment.checksum}"


def _other_kernel_arguments(target: OsTarget, tokens: Sequence[str]) -> str:
    line = line_of(tokens)
    wanted = merged_arguments(tokens, target)
    words = [f"lacks {token}" for token in Counter(wanted) - Counter(line)]
    words += [f"still has {token}" for token in Counter(line) - Counter(wanted)]
    if not words and wanted != line:
        words = ["has arguments that belong together in another order"]
    return ", ".join(words)


def merged_arguments(tokens: Sequence[str], target: OsTarget) -> tuple[str, ...]:
    """Return the kernel arguments of a deployment that is made from a deployment with ``tokens``."""
    without, own = target.without_kernel_arguments, target.own_kernel_arguments
    return merged(tokens, target.kernel_arguments, without, own)


def booted(deployments: Sequence[Deployment]) -> Deployment | None:
    return next((d for d in deployments if d.booted), None)


def staged(deployments: Sequence[Deployment]) -> Deployment | None:
    return next((d for d in deployments if d.staged), None)


def contents(deployment: Deployment) -> frozenset[str]:
    """Return the digests and checksums that identify the image of a deployment."""
    digest = deployment.digest or deployment.image.partition("@")[2]
    return frozenset({digest, deployment.base, deployment.checksum} - {""})


def target_to_dict(target: OsTarget) -> dict[str, Any]:
    """Return the target as JSON data for the record."""
    return {
        "image": image_to_text(target.image) if target.image else "",
        "kernel_arguments": list(target.kernel_arguments),
        "without_kernel_arguments": list(target.without_kernel_arguments),
        "own_kernel_arguments": list(target.own_kernel_arguments),
        "packages": sorted(target.packages),
        "optional_packages": sorted(target.optional_packages),
        "without_packages": sorted(target.without_packages),
        "removed": sorted(target.removed),
        "without_removed": sorted(target.without_removed),
        "extensions_image": image_to_text(target.extensions_image) if target.extensions_image else "",
    }


def target_from_dict(data: Mapping[str, Any]) -> OsTarget:
    """Return the target of ``target_to_dict``. Raises ``KeyError``, ``TypeError``, ``InvalidInput`` for other data."""
    extensions = parse_image(data["extensions_image"]) if data["extensions_image"] else None
    return OsTarget(
        image=parse_image(data["image"]) if data["image"] else None,
        kernel_arguments=tuple(map(str, data["kernel_arguments"])),
        without_kernel_arguments=tuple(map(str, data["without_kernel_arguments"])),
        own_kernel_arguments=tuple(map(str, data["own_kernel_arguments"])),
        packages=frozenset(map(str, data["packages"])),
        optional_packages=frozenset(map(str, data["optional_packages"])),
        without_packages=frozenset(map(str, data["without_packages"])),
        removed=frozenset(map(str, data["removed"])),
        without_removed=frozenset(map(str, data["without_removed"])),
        extensions_image=extensions if isinstance(extensions, ContainerImage) else None,
    )
