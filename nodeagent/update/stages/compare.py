# SPDX-License-Identifier: Apache-2.0
"""Compare the host with a config, from the state of the host and never from the record.

``mismatches`` compares files, units and users. Whether units stay up is checked in ``unit_watch``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from nodeagent.core.config.file_tree import FileTreeEntry, expand
from nodeagent.core.config.machineconfig import DirectoryEntry, FileEntry, MachineConfig, UnitEntry, UserEntry
from nodeagent.core.config.paths import ssh_keys_path
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.effective import Candidate, asks_of_os, effective, mismatches_of, os_in_force
from nodeagent.core.plan.entries import entries_by_path
from nodeagent.core.plan.static_pods import owned_manifests
from nodeagent.core.plan.unit_origin import Brought
from nodeagent.errors import AgentError, Unreconcilable
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import Warned
from nodeagent.update.record import Record
from nodeagent.update.run import Ports, narrate
from nodeagent.update.steps.originals import own_arguments
from nodeagent.update.steps.unit_links import missing_links

# States of systemctl is-enabled. A static, indirect or generated unit has no links of its own, so both sets contain it.

ENABLED = frozenset({"enabled", "enabled-runtime", "alias", "static", "indirect", "generated", "linked"})
NOT_ENABLED = frozenset({"disabled", "static", "indirect", "generated", "linked", "masked", "transient", ""})


# The group counts as well: its members are not root.
_OTHERS_WRITE = 0o022


class VerifyFailed(AgentError):
    """``curable``: a reboot may help. ``unit`` is the one that is not well."""

    default_reason = Reason.VERIFY_FAILED

    def __init__(self, message: str, *, reason: AnyReason | None = None, curable: bool = False, unit: str = "") -> None:
        super().__init__(message, reason=reason)
        self.curable = curable
        self.unit = unit


async def mismatches(
    ports: Ports, config: MachineConfig, *, watched: bool = False, expected: Callable[[str], bool] | None = None
) -> dict[str, str]:
    """Return what differs from ``config``, by entry: ``file:/etc/x``, ``unit:x.service``, ``user:x``, ``sshkey:core``,
    ``password:core``. For the OS see ``os_mismatches``. Static pods of an operator, which no update writes, are left
    out unless ``watched``. A unit that is missing is not compared, unless it is ``expected`` to be there later."""
    owner = entries_by_path(config)
    owned = owned_manifests(config)
    wrong: dict[str, str] = {}
    for path, node in expand(config).items():
        if path in owned and not watched:
            continue
        if difference := await _difference(ports, path, node):
            difference += "; an operator writes it" if path in owned else ""
            entry = owner[path]
            wrong.setdefault(entry, difference if entry == f"file:{path}" else f"{path}: {difference}")
    lacking = await missing_links(ports, config)
    for unit in config.units.values():
        lacks = lacking.get(unit.name)
        if f"unit:{unit.name}" not in wrong and (difference := await _enablement(ports, unit, expected, lacks)):
            wrong[f"unit:{unit.name}"] = difference
    for user in config.users.values():
        if user.password_hash is not None and await ports.users.password_hash(user.name) != user.password_hash:
            wrong[f"password:{user.name}"] = "has another password hash"
        if user.account is not None and (difference := await _account(ports, user)):
            wrong[f"user:{user.name}"] = difference
    return wrong


async def _account(ports: Ports, user: UserEntry) -> str:
    account = await ports.users.account(user.name)
    if account is None:
        return "is missing"
    lacking = sorted({*user.groups} - account.groups)
    return "is expired" if account.expired else f"is not in the group {', '.join(lacking)}" if lacking else ""


async def _difference(ports: Ports, path: str, node: FileTreeEntry) -> str:
    try:
        return await ports.files.differs(path, node)
    except AgentError as error:
        # For example a FUSE mount of its owner, which root cannot read.
        if await ports.files.contested(path):
            return error.message
        raise


async def os_mismatches(ports: Ports, config: MachineConfig, *, needed: bool = True) -> dict[str, str]:
    """Entry id (``osImageURL:osImageURL``, ...) to what the booted deployment does not have of it. ``needed`` as for
    ``with_os``."""
    if not asks_of_os(config) or (deployment := await _booted(ports, needed=needed)) is None:
        return {}
    return dict(mismatches_of(config, deployment))


async def _booted(ports: Ports, *, needed: bool) -> Deployment | None:
    """Return the booted deployment; None where it is not known and not needed."""
    if ports.os is None:
        return None
    try:
        return await ports.os.booted()
    except Unreconcilable:
        # A host that cannot be updated. check_stageable rejects updates of its OS.
        return None
    except AgentError:
        if needed:
            raise
        return None


async def in_force(
    ports: Ports,
    base: MachineConfig,
    candidates: Sequence[MachineConfig],
    new: MachineConfig,
    *,
    left_alone: Collection[str] = (),
    needed: bool = True,
) -> MachineConfig:
    """Return the config that is in effect on the host, from the entries of the candidates that it has.

    The first of ``candidates`` is the current config. The drift in ``left_alone`` counts as none. ``needed`` as for
    ``with_os``.
    """
    # The new config may bring a unit that an entry enables, so that the host does not have it enabled yet.
    brings = Brought(new).has
    compared = [
        Candidate(
            config, (await mismatches(ports, config, watched=True, expected=brings)).keys() - frozenset(left_alone)
        )
        for config in candidates
    ]
    return effective(await with_os(ports, base, candidates, new, needed=needed), compared, new)


async def with_os(
    ports: Ports,
    base: MachineConfig,
    candidates: Sequence[MachineConfig],
    new: MachineConfig,
    *,
    needed: bool = True,
) -> MachineConfig:
    """Return ``base`` with the booted OS, whichever update brought it.

    Without ``needed`` the update changes nothing of the OS, and deployments that cannot be read are ignored: the
    update may be about to repair what serves them.
    """
    if not any(map(asks_of_os, candidates)) or (deployment := await _booted(ports, needed=needed)) is None:
        return base
    own = await own_arguments(ports, candidates, new, deployment)
    return os_in_force(base, candidates, new, deployment, own)


async def _enablement(
    ports: Ports, unit: UnitEntry, expected: Callable[[str], bool] | None, lacking: Sequence[str] | None
) -> str:
    # A mask is a link to /dev/null, which is compared as a file.
    if unit.mask or unit.enabled is None:
        return ""
    if lacking == []:
        return ""
    state = await ports.units.state(unit.name)
    if lacking:
        # One that starts because of other links is enabled for systemd.
        return f"is {state.file}" if state.file and state.file not in ENABLED else f"lacks {', '.join(lacking)}"
    if unit.enabled and state.file not in ENABLED:
        # An entry for a unit that exists nowhere has no effect: operators render it for every node.
        missing = state.load == "not-found" and unit.contents is None
        if missing and not (expected is not None and expected(unit.name)):
            return ""
        return f"is {state.file or 'not enabled'}"
    if not unit.enabled and state.file not in NOT_ENABLED:
        return f"is {state.file}, should be disabled"
    return ""


async def divide(
    ports: Ports, config: MachineConfig, wrong: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Divide what ``mismatches`` returned for ``config``: what only root can have caused, and what others can have. Of
    the latter each message says who.

    The owner of a directory, such as the home directory of ``core``, can replace everything in it at any time. So what
    is there is reported, and never a verdict: it does not block the verification of everything else.
    """
    strict: dict[str, str] = {}
    loose: dict[str, str] = {}
    for entry, difference in wrong.items():
        owner = await _others(ports, config, entry)
        if owner:
            loose[entry] = f"{difference} ({owner})"
        else:
            strict[entry] = difference
    return strict, loose


def report_contested(ports: Ports, differences: Mapping[str, str], record: Record) -> None:
    for entry, difference in sorted(differences.items()):
        narrate(ports, record, Warned, f"{entry} is not as desired: {difference}", Reason.PATH_CONTESTED)


async def _others(ports: Ports, config: MachineConfig, entry_id: str) -> str:
    """Return who besides root can change what an entry is about; "" if only root can."""
    domain, _, key = entry_id.partition(":")
    match domain:
        case "file":
            # The config itself gives such a file away, and its owner may write to it at any time.
            entry = config.storage.get(key)
            kind = "directory" if isinstance(entry, DirectoryEntry) else "file"
            # The owner of a link changes nothing about it: that takes the directory.
            if isinstance(entry, FileEntry | DirectoryEntry) and entry.user not in (0, "root", None):
                return f"the {kind} belongs to {entry.user}"
            if isinstance(entry, FileEntry) and entry.mode & _OTHERS_WRITE:
                return "others than root may write to the file"
            return await ports.files.contested(key)
        case "sshkey":
            return await ports.files.contested(ssh_keys_path(key, config.users[key].home))
        case _:
            return ""
