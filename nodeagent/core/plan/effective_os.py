"""What the booted deployment has of the configs that this host may hold: the part of a config that is no file.

Answers as ``verify.mismatches`` and ``effective`` do for files, so that a first start, a rollback by hand and an update
that ended half-way lead to a plan with exactly what is still to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nodeagent.core.config.image import OsImage, parse_image
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.packages import KERNELS, NOT_IN_EACH_IMAGE, packages_of, replaced_of
from nodeagent.core.plan.deployment import Deployment, OsTarget, unmet
from nodeagent.errors import InvalidInput

__all__ = ["asks_of_os", "mismatches_of", "os_in_force", "same_os"]


_FIELDS = ("os_image_url", "kernel_arguments", "extensions", "kernel_type")


def asks_of_os(config: MachineConfig) -> bool:
    """Whether there is anything to compare. Kernel type ``default`` is asked of a host by nobody."""
    return bool(config.os_image_url or config.kernel_arguments or config.extensions or config.kernel_type != "default")


def same_os(one: MachineConfig, other: MachineConfig) -> bool:
    """Whether they ask the same of the OS, so that going from one to the other takes no deployment."""
    return all(getattr(one, name) == getattr(other, name) for name in _FIELDS)


def mismatches_of(config: MachineConfig, deployment: Deployment) -> Mapping[str, str]:
    """Entry id, as changes have them (``osImageURL:osImageURL``), to what the deployment does not have of it.

    An image that is not pinned cannot be compared, and counts as there.
    """
    target = OsTarget(
        image=_image(config.os_image_url),
        kernel_arguments=config.kernel_arguments,
        packages=packages_of(config),
        removed=replaced_of(config),
    )
    return {f"{domain}:{domain}": why for domain, why in unmet(target, deployment).items()}


def os_in_force(
    base: MachineConfig, candidates: Sequence[MachineConfig], new: MachineConfig, deployment: Deployment
) -> MachineConfig:
    """``base`` with the fields of the OS as they are on the host, as far as any of ``candidates`` (the current config
    first) knows them. What the host has beyond that is its own, and stays."""
    return replace(
        base,
        os_image_url=_image_url(candidates, new, deployment),
        kernel_arguments=_kernel_arguments(candidates, deployment),
        kernel_type=_kernel_type(candidates, new, deployment),
        extensions=_extensions(candidates, new, deployment),
    )


def _image(url: str) -> OsImage | None:
    try:
        return parse_image(url) if url else None
    except InvalidInput:
        return None


def _image_url(candidates: Sequence[MachineConfig], new: MachineConfig, deployment: Deployment) -> str:
    urls = list(dict.fromkeys(config.os_image_url for config in candidates))
    # The same content by another name is no change: of that one nothing is left to do.
    for url in (new.os_image_url, *urls):
        if (image := _image(url)) is not None and not unmet(OsTarget(image), deployment):
            return url
    # What cannot be compared is believed of the first config only: that is the one that was verified here.
    first = urls[0] if urls else ""
    if not new.os_image_url or (first == new.os_image_url and _image(first) is None):
        return new.os_image_url
    return first if first != new.os_image_url else ""


def _kernel_arguments(candidates: Sequence[MachineConfig], deployment: Deployment) -> tuple[str, ...]:
    known = dict.fromkeys(token for config in candidates for token in config.kernel_arguments)
    for config in candidates:
        wants = config.kernel_arguments
        others = tuple(token for token in known if token not in wants)
        if not unmet(OsTarget(kernel_arguments=wants, without_kernel_arguments=others), deployment):
            return wants
    # In the order of the host: of a repeated key the last one counts, so another order is a difference.
    return tuple(token for token in deployment.kernel_arguments if token in known)


def _kernel_type(candidates: Sequence[MachineConfig], new: MachineConfig, deployment: Deployment) -> str:
    for kind in dict.fromkeys(config.kernel_type for config in candidates):
        packages = frozenset(KERNELS.get(kind, ()))
        removed = replaced_of(replace(new, kernel_type=kind)) - NOT_IN_EACH_IMAGE
        if packages <= deployment.packages and removed <= deployment.removed and (removed or not _swapped(deployment)):
            return kind
    return next((config.kernel_type for config in candidates if config.kernel_type != new.kernel_type), "default")


def _swapped(deployment: Deployment) -> bool:
    return any(replaced_of(MachineConfig("", kernel_type=kind)) & deployment.removed for kind in KERNELS)


def _extensions(candidates: Sequence[MachineConfig], new: MachineConfig, deployment: Deployment) -> tuple[str, ...]:
    there: set[str] = set()
    for name in dict.fromkeys(name for config in candidates for name in config.extensions):
        packages = packages_of(MachineConfig("", extensions=(name,)))
        # One that shall go is there as long as a part of it is; one that shall come, when all of it is.
        if packages <= deployment.packages or (name not in new.extensions and packages & deployment.packages):
            there.add(name)
    for config in candidates:
        if set(config.extensions) == there:
            return config.extensions
    return tuple(sorted(there))
