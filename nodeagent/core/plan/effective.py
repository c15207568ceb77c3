# SPDX-License-Identifier: Apache-2.0
"""The config that is in force on a host, if that is not the current one.

On a first start there is no current config; after a failed update the disk has parts of another one; an admin may have
changed a file. The effective config is built entry by entry from configs that were compared with the disk, so that the
plan lists exactly the remaining changes.

The OS fields are compared with the booted deployment in the same way, so that a first start, a manual rollback and an
interrupted update lead to a plan with exactly the remaining changes, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from nodeagent.core.config.image import OsImage, parse_image
from nodeagent.core.config.kargs import families_of, members
from nodeagent.core.config.machineconfig import MachineConfig, UserEntry
from nodeagent.core.config.packages import KERNELS, NOT_IN_EACH_IMAGE, optional_of, packages_of, replaced_of
from nodeagent.core.plan.deployment import Deployment, OsTarget, unmet
from nodeagent.errors import InvalidInput

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A config, and the ids of its entries that the host lacks.

    Ids are ``file:/etc/x``, ``unit:x.service``, ``sshkey:core`` and ``password:core``.
    """

    config: MachineConfig
    missing: Collection[str]

    def has(self, entry_id: str) -> bool:
        return entry_id not in self.missing


def effective(base: MachineConfig, candidates: Sequence[Candidate], desired: MachineConfig) -> MachineConfig:
    """Return ``base``, with each entry replaced by that of the first candidate that matches the disk.

    If no candidate matches, an entry that the desired config lacks is kept, so that it is removed, and an entry that it
    has is dropped, so that it is written again.
    """
    return replace(
        base,
        files=_pick([(c, c.config.files) for c in candidates], desired.storage, "file"),
        units=_pick([(c, c.config.units) for c in candidates], desired.units, "unit"),
        users=_users(candidates, desired),
        directories=_pick([(c, c.config.directories) for c in candidates], desired.storage, "file"),
        links=_pick([(c, c.config.links) for c in candidates], desired.storage, "file"),
    )


def _pick(
    sources: Sequence[tuple[Candidate, Mapping[str, Entry]]], desired: Mapping[str, object], domain: str
) -> dict[str, Entry]:
    picked: dict[str, Entry] = {}
    for key in sorted({key for _, entries in sources for key in entries}):
        having = [(candidate, entries[key]) for candidate, entries in sources if key in entries]
        agreed = [entry for candidate, entry in having if candidate.has(f"{domain}:{key}")]
        if agreed:
            picked[key] = agreed[0]
        elif key not in desired:
            picked[key] = having[0][1]
    return picked


def _users(candidates: Sequence[Candidate], desired: MachineConfig) -> dict[str, UserEntry]:
    names = sorted({name for candidate in candidates for name in candidate.config.users})
    users = {name: _user(name, candidates, desired) for name in names}
    return {name: user for name, user in users.items() if user is not None}


def _user(name: str, candidates: Sequence[Candidate], desired: MachineConfig) -> UserEntry | None:
    wanted = desired.users.get(name)

    def first(domain: str, attribute: str) -> Any:
        # What leaves with the desired config is kept, so that it is removed.
        leaves = not getattr(wanted, attribute, None)
        for candidate in candidates:
            value = getattr(candidate.config.users.get(name), attribute, None)
            if value and (leaves or candidate.has(f"{domain}:{name}")):
                return value
        return None

    keys, password = first("sshkey", "ssh_keys"), first("password", "password_hash")
    having = [candidate for candidate in candidates if name in candidate.config.users]
    leaves = wanted is None or wanted.account is None
    accounts = [c.config.users[name] for c in having if leaves or c.has(f"user:{name}")]
    account = next((user for user in accounts if user.account is not None), None)
    if keys is None and password is None and account is None:
        # The host cannot lack anything of a user without keys and password.
        return wanted if wanted == UserEntry(name) else None
    base = account or replace(having[0].config.users[name], groups=(), account=None)
    return replace(base, ssh_keys=keys or (), password_hash=password)


_FIELDS = ("os_image_url", "argument_rules", "extensions", "kernel_type")


def fields_of_os(config: MachineConfig) -> tuple[str, ...]:
    """Return the names of the fields with which the config requires anything of the OS. Kernel type ``default`` does
    not."""
    values = {
        "osImageURL": config.os_image_url,
        "kernelArguments": config.named_arguments,
        "extensions": config.extensions,
        "kernelType": config.kernel_type != "default",
    }
    return tuple(name for name, value in values.items() if value)


def asks_of_os(config: MachineConfig) -> bool:
    return bool(fields_of_os(config))


def same_os(config: MachineConfig, other: MachineConfig) -> bool:
    """Return whether both configs require the same of the OS, so that a change needs no deployment."""
    return all(getattr(config, name) == getattr(other, name) for name in _FIELDS)


def mismatches_of(config: MachineConfig, deployment: Deployment) -> Mapping[str, str]:
    """Return how the deployment differs from a config, by entry id (``osImageURL:osImageURL``).

    An image that is not pinned cannot be compared and counts as equal.
    """
    target = OsTarget(
        image=_image(config.os_image_url),
        kernel_arguments=config.kernel_arguments,
        without_kernel_arguments=config.absent_arguments,
        packages=packages_of(config),
        removed=replaced_of(config),
    )
    return {f"{domain}:{domain}": mismatch for domain, mismatch in unmet(target, deployment).items()}


def os_in_force(
    base: MachineConfig,
    candidates: Sequence[MachineConfig],
    new: MachineConfig,
    deployment: Deployment,
    own_arguments: Sequence[str] = (),
) -> MachineConfig:
    """Return ``base`` with the OS fields of the host, as far as a candidate has them; the current config is first.

    Other values of the host are its own and remain. ``own_arguments`` are the kernel arguments of the candidates that
    the host has on its own.
    """
    absent = _absent_arguments(candidates, new, deployment, own_arguments)
    present = tuple(token for token in own_arguments if token not in absent)
    return replace(
        base,
        os_image_url=_image_url(candidates, new, deployment),
        kernel_arguments=_kernel_arguments(candidates, new, deployment, present),
        absent_arguments=absent,
        kernel_type=_kernel_type(candidates, new, deployment),
        extensions=_extensions(candidates, new, deployment),
    )


def _image(url: str) -> OsImage | None:
    try:
        return parse_image(url) if url else None
    # A stored config may have a reference that an earlier version accepted.
    except InvalidInput:
        return None


def _image_url(candidates: Sequence[MachineConfig], new: MachineConfig, deployment: Deployment) -> str:
    urls = list(dict.fromkeys(config.os_image_url for config in candidates))
    # The same content under another name is no change.
    for url in (new.os_image_url, *urls):
        if (image := _image(url)) is not None and not unmet(OsTarget(image), deployment):
            return url
    # A value that cannot be compared is taken from the first config only, which was verified on this host.
    first = urls[0] if urls else ""
    if not new.os_image_url or (first == new.os_image_url and _image(first) is None):
        return new.os_image_url
    return first if first != new.os_image_url else ""


def _kernel_arguments(
    candidates: Sequence[MachineConfig], new: MachineConfig, deployment: Deployment, own: Sequence[str]
) -> tuple[str, ...]:
    named = tuple(token for config in candidates for token in config.kernel_arguments)
    # The new config comes first: a host that has its arguments, in whatever place, needs no deployment.
    wants = next(
        (tokens for tokens in _of_all(new, candidates) if _has_arguments(deployment, tokens, named, own)), None
    )
    if wants is None:
        # In the order of the host: the last value of a repeated key counts, so another order is a difference.
        wants = tuple(token for token in deployment.kernel_arguments if token in named)
    # What the host has on its own remains when the config no longer names it.
    left = Counter(own) - Counter(new.kernel_arguments)
    managed: list[str] = []
    for token in wants:
        if left[token]:
            left[token] -= 1
        else:
            managed.append(token)
    if tuple(managed) != new.kernel_arguments:
        return tuple(managed)
    # An equal value would be no change. A later token of another program may have taken the effect of one away.
    return tuple(token for token in managed if _has_family(deployment, families_of([token])[0], new, named, own))


def _absent_arguments(
    candidates: Sequence[MachineConfig], new: MachineConfig, deployment: Deployment, own: Sequence[str]
) -> tuple[str, ...]:
    """Return the arguments that the host lacks because of a config. One that it never had does not come back."""
    taken = {token for config in candidates for token in config.absent_arguments if token in own}
    return tuple(sorted({*new.absent_arguments, *taken} - set(deployment.kernel_arguments)))


def _has_family(
    deployment: Deployment, family: str, new: MachineConfig, named: Sequence[str], own: Sequence[str]
) -> bool:
    return _has_arguments(deployment, *(members(tokens, family) for tokens in (new.kernel_arguments, named, own)))


def _of_all(new: MachineConfig, candidates: Sequence[MachineConfig]) -> Iterator[tuple[str, ...]]:
    yield new.kernel_arguments
    for config in candidates:
        yield config.kernel_arguments


def _has_arguments(deployment: Deployment, wants: Sequence[str], named: Sequence[str], own: Sequence[str]) -> bool:
    return not unmet(OsTarget(None, tuple(wants), tuple(named), tuple(own)), deployment)


def _kernel_type(candidates: Sequence[MachineConfig], new: MachineConfig, deployment: Deployment) -> str:
    for kind in dict.fromkeys(config.kernel_type for config in candidates):
        packages = frozenset(KERNELS.get(kind, ()))
        # The default kernel needs no package and removes none, so it would match every deployment. It counts only on
        # one where no other kernel has replaced that of the image.
        removed = replaced_of(replace(new, kernel_type=kind)) - NOT_IN_EACH_IMAGE
        if packages <= deployment.packages and removed <= deployment.removed and (removed or not _swapped(deployment)):
            return kind
    # None matches: any type but the new one makes the change visible.
    return next((config.kernel_type for config in candidates if config.kernel_type != new.kernel_type), "default")


def _swapped(deployment: Deployment) -> bool:
    return any(replaced_of(MachineConfig("", kernel_type=kind)) & deployment.removed for kind in KERNELS)


def _extensions(candidates: Sequence[MachineConfig], new: MachineConfig, deployment: Deployment) -> tuple[str, ...]:
    there: set[str] = set()
    for name in dict.fromkeys(name for config in candidates for name in config.extensions):
        alone = MachineConfig("", extensions=(name,))
        packages = packages_of(alone)
        # An extension to remove exists while one of its packages does, one to add when all of them do.
        left = (packages | optional_of(alone)) & deployment.packages
        if packages <= deployment.packages or (name not in new.extensions and left):
            there.add(name)
    return tuple(sorted(there))
