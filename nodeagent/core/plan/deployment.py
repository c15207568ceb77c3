"""Deployments of the OS, and what the next one shall be: pure data, and the questions that are asked of it.

A target is absolute where it can be (the image, the packages) and a difference where the host has a say as well (kernel
arguments: the installer and other tools set some, and those stay). Asking twice for the same target gives the same
deployment, so a retry after a crash needs no memory of how far the first try came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodeagent.core.config.image import ContainerImage, OsImage, OstreeCommit, image_to_text, parse_image
from nodeagent.core.config.kargs import merged
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.packages import NOT_IN_EACH_IMAGE, packages_of, replaced_of

__all__ = [
    "OS_DOMAINS",
    "Deployment",
    "OsTarget",
    "StageProgress",
    "booted",
    "staged",
    "target_between",
    "target_from_dict",
    "target_to_dict",
    "unmet",
]

OS_DOMAINS = frozenset({"osImageURL", "kernelArguments", "kernelType", "extensions"})
"""Domains of changes that a deployment brings."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """One entry of the boot order. ``checksum`` is that of the tree that boots, ``base`` that of the image below the
    layered packages (the same without any). ``digest`` and ``image`` are of a container, "" otherwise; ``origin`` is
    the refspec of an ostree one. ``locked`` None: it cannot be known, or is not staged."""

    id: str
    checksum: str
    osname: str
    base: str = ""
    version: str = ""
    image: str = ""
    digest: str = ""
    origin: str = ""
    packages: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()  # packages of the base that are left out
    kernel_arguments: tuple[str, ...] = ()  # of its boot entry, or the ones that it will have there
    booted: bool = False
    staged: bool = False
    pinned: bool = False
    locked: bool | None = None


@dataclass(frozen=True, slots=True)
class OsTarget:
    """``image`` None: the one that is booted stays. Packages and kernel arguments to have and to be without; whatever
    is in neither stays as it is."""

    image: OsImage | None = None
    kernel_arguments: tuple[str, ...] = ()
    without_kernel_arguments: tuple[str, ...] = ()
    packages: frozenset[str] = frozenset()
    without_packages: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()  # packages of the base to leave out, as far as it has them
    without_removed: frozenset[str] = frozenset()  # packages of the base to have back


@dataclass(frozen=True, slots=True)
class StageProgress:
    """``done`` of ``total`` parts of the task under way; both 0 where it has no parts. ``fetched`` in bytes, None
    where the daemon does not say."""

    task: str
    done: int = 0
    total: int = 0
    fetched: int | None = None


def target_between(old: MachineConfig, new: MachineConfig) -> OsTarget | None:
    """What ``new`` asks of the OS that ``old`` did not; None if no deployment is needed for it.

    Kernel arguments that stay are part of the target too: their order has a meaning, and a deployment that lost one
    is not what is desired.
    """
    was, now = packages_of(old), packages_of(new)
    swapped, swaps = replaced_of(old), replaced_of(new)
    same_kargs = old.kernel_arguments == new.kernel_arguments
    if old.os_image_url == new.os_image_url and same_kargs and was == now and swapped == swaps:
        return None
    image = parse_image(new.os_image_url) if new.os_image_url and new.os_image_url != old.os_image_url else None
    return OsTarget(
        image=image,
        kernel_arguments=new.kernel_arguments,
        without_kernel_arguments=tuple(k for k in dict.fromkeys(old.kernel_arguments) if k not in new.kernel_arguments),
        packages=now,
        without_packages=was - now,
        removed=swaps,
        without_removed=swapped - swaps,
    )


def unmet(target: OsTarget, deployment: Deployment) -> Mapping[str, str]:
    """Domain to what of ``target`` this deployment does not have; empty if it is what was asked for."""
    wrong: dict[str, str] = {}
    if target.image is not None and (why := _other_image(target.image, deployment)):
        wrong["osImageURL"] = why
    if why := _other_kernel_arguments(target, deployment.kernel_arguments):
        wrong["kernelArguments"] = why
    missing = [f"lacks {name}" for name in sorted(target.packages - deployment.packages)]
    left = [f"still has {name}" for name in sorted(target.without_packages & deployment.packages)]
    if missing or left:
        wrong["extensions"] = ", ".join([*missing, *left])
    if not target.removed - NOT_IN_EACH_IMAGE <= deployment.removed or target.without_removed & deployment.removed:
        wrong["kernelType"] = "has another kernel"
    return wrong


def _other_image(image: OsImage, deployment: Deployment) -> str:
    match image:
        case ContainerImage():
            # The daemon goes on without the digest if it cannot read an image's metadata; a pinned origin has it too.
            digest = deployment.digest or deployment.image.partition("@")[2]
            return "" if digest == image.digest else f"is {digest or deployment.base or deployment.checksum}"
        case OstreeCommit():
            return "" if image.checksum in (deployment.base, deployment.checksum) else f"is {deployment.checksum}"


def _other_kernel_arguments(target: OsTarget, tokens: Sequence[str]) -> str:
    shall = merged(tokens, target.kernel_arguments, target.without_kernel_arguments)
    lacking = Counter(shall) - Counter(tokens)
    extra = set(target.without_kernel_arguments) - set(shall)
    words = [f"lacks {token}" for token in lacking]
    words += [f"still has {token}" for token in target.without_kernel_arguments if token in extra and token in tokens]
    if not words and shall != merged(tokens, (), ()):
        words = ["has the values of a key in another order"]
    return ", ".join(words)


def booted(deployments: Sequence[Deployment]) -> Deployment | None:
    return next((d for d in deployments if d.booted), None)


def staged(deployments: Sequence[Deployment]) -> Deployment | None:
    return next((d for d in deployments if d.staged), None)


def target_to_dict(target: OsTarget) -> dict[str, Any]:
    """For the record."""
    return {
        "image": image_to_text(target.image) if target.image else "",
        "kernel_arguments": list(target.kernel_arguments),
        "without_kernel_arguments": list(target.without_kernel_arguments),
        "packages": sorted(target.packages),
        "without_packages": sorted(target.without_packages),
        "removed": sorted(target.removed),
        "without_removed": sorted(target.without_removed),
    }


def target_from_dict(data: Mapping[str, Any]) -> OsTarget:
    """Raises ``KeyError``, ``TypeError`` or ``InvalidInput`` for what ``target_to_dict`` did not make."""
    return OsTarget(
        image=parse_image(data["image"]) if data["image"] else None,
        kernel_arguments=tuple(map(str, data["kernel_arguments"])),
        without_kernel_arguments=tuple(map(str, data["without_kernel_arguments"])),
        packages=frozenset(map(str, data["packages"])),
        without_packages=frozenset(map(str, data["without_packages"])),
        removed=frozenset(map(str, data["removed"])),
        without_removed=frozenset(map(str, data["without_removed"])),
    )
