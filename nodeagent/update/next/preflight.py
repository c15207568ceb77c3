# SPDX-License-Identifier: Apache-2.0
"""The checks of a desired config before any change: it is valid, it can be applied, and what it takes.

A rejection is cheap here. Later it costs a lease, a drain and a revert.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from nodeagent.core.config.fetched import fetched_of
from nodeagent.core.config.file_tree import Directory, FileTreeEntry, expand
from nodeagent.core.config.machineconfig import ConfigSource, MachineConfig, coming_accounts, meaning, with_os_of
from nodeagent.core.config.parse import parse
from nodeagent.core.plan.change import Action, Plan
from nodeagent.core.plan.deployment import (
    OS_DOMAINS,
    OsTarget,
    target_between,
    target_to_dict,
    unmet,
)
from nodeagent.core.plan.diff import diff
from nodeagent.core.plan.effective import same_os
from nodeagent.core.plan.entries import has_entry, unchanged
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.plan_json import plan_to_dict
from nodeagent.core.plan.plan_values import with_values
from nodeagent.core.plan.policy import Policy
from nodeagent.core.plan.reconcile import left_out
from nodeagent.core.plan.removal import removal_of
from nodeagent.core.plan.sides import NO_CONFIG, HostView
from nodeagent.core.plan.static_pods import owned_manifests
from nodeagent.core.plan.steps import (
    DisableUnit,
    EnableUnit,
    PresetUnit,
    RemovePath,
    RestoreUnit,
    WritePath,
    WriteStep,
    step_to_pair,
    write_steps,
)
from nodeagent.core.plan.unit_changes import enabled_only, leaving_unit
from nodeagent.core.plan.unit_entries import Judged
from nodeagent.domains import check_update, warnings
from nodeagent.errors import AgentError, InvalidInput, Problem, Refused, Unreconcilable
from nodeagent.reasons import Reason
from nodeagent.update.history.lasting import Confirmation
from nodeagent.update.next.install_notes import notes_on_install
from nodeagent.update.next.os_fields import NO_OS, first_basis
from nodeagent.update.next.safeguards import check_fetched, check_login
from nodeagent.update.next.unit_checks import Files, UnitChecks
from nodeagent.update.ports.host import MAX_KEPT, Validator
from nodeagent.update.record import OsProgress, Record
from nodeagent.update.run import Basis, Ports, Update, UpdatePolicy
from nodeagent.update.stages import compare
from nodeagent.update.stages.admission import check_target
from nodeagent.update.stages.compare import in_force, mismatches, os_mismatches, with_os
from nodeagent.update.steps.accounts import check_accounts
from nodeagent.update.steps.originals import changed_families, has_other_file, managed_keys, original_of, own_arguments
from nodeagent.update.steps.unit_links import disabled_again
from nodeagent.update.steps.units_before import notes_on_masks

# Changes whose values are in the record, which is written at each step.
MAX_DESCRIBED = 200


@dataclass(frozen=True, slots=True)
class Desired:
    """A desired config: its text, the parsed config, and the digest of its meaning for a host."""

    source: ConfigSource
    config: MachineConfig
    meaning: str = field(init=False)

    def __post_init__(self) -> None:
        # A frozen dataclass has no other way to set a field that follows from others.
        object.__setattr__(self, "meaning", meaning(self.config))


def read_source(source: ConfigSource) -> Desired:
    """Parse a config and compute its digest. Blocks for some milliseconds; raises ``InvalidInput``."""
    return Desired(source, parse(source.text))


# What an update does about entries that differ: the values of the setting ``on_drift``.
OnDrift = Literal["report", "refuse", "repair"]


@dataclass(frozen=True, slots=True)
class Preflight:
    """``policy`` is the one for an update from one config to another, as it is by then. ``view`` returns the files of
    this host that the domains read for such an update."""

    ports: Ports
    policy_of_updates: UpdatePolicy
    validators: Sequence[Validator]
    policy: Callable[[MachineConfig, MachineConfig], Awaitable[Policy]]
    on_drift: OnDrift
    view: Callable[[MachineConfig, MachineConfig], Awaitable[HostView]]
    # The update leaves the OS as it is, whatever is booted.
    leaves_os: bool = False

    async def prepare(
        self,
        desired: Desired,
        bases: Sequence[Desired],
        *,
        dirty: bool,
        first: bool,
        from_name: str = "",
        confirmed: Confirmation | None = None,
    ) -> Update:
        """The update to run. ``known`` are the configs whose entries the disk may hold, the current one first;
        ``dirty``: an update ended half-way, so the disk holds a mixture of them. ``from_name`` is the name of the
        current config, if the host has safe parts of another one beside it. An operator ``confirmed`` what would be
        refused.

        Raises ``InvalidInput``, ``Unreconcilable``, ``Refused``. Touches nothing.
        """
        basis, drifted = await self._basis(desired.config, [k.config for k in bases], dirty=dirty, first=first)
        old = basis.config
        # The pure checks come first, because those after them start programs of the host. For the largest config each
        # takes up to half a second, so they run in a thread.
        accepted = {section for guard in self.ports.guards for section in guard.accepts()}
        acceptable = {section: key for guard in self.ports.guards for section, key in guard.acceptable.items()}
        present = {section for guard in self.ports.guards for section in await guard.as_installed(old, desired.config)}
        check = partial(check_update, on_host=True, accepted=accepted | present, acceptable=acceptable)
        await asyncio.to_thread(check, old, desired.config, desired.config.name)
        check_fetched(self.ports, old, desired.config)
        restored = await self._restored(old, desired.config)
        basis = replace(basis, restored=restored)
        view = replace(await self.view(old, desired.config), restored=restored)
        host = await self._with_other_units(view, old, desired.config)
        current = bases[0].config if bases else NO_CONFIG
        target = await self._target(old, desired.config, current)
        judged = await UnitChecks(self.ports.units).judge(
            old,
            desired.config,
            other_os=target is not None,
            current=current,
            other_files=host.other_unit_files,
        )
        make = partial(
            make_plan,
            old,
            desired.config,
            await self.policy(old, desired.config),
            from_name=from_name or (bases[0].config.name if bases else ""),
            idle=judged.idle,
        )
        plan = await asyncio.to_thread(make, host=host)
        # With another OS, the units of the booted one say nothing.
        if target is None and (rejected := await self._rejected(plan, old, desired.config, restored)):
            plan = await asyncio.to_thread(make, host=replace(host, rejected=rejected))
        if plan.reboot and not self.policy_of_updates.may_reboot:
            causes = next(", ".join(a.because) for a in plan.actions if a.type == "Reboot")
            raise Refused(f"a reboot is needed for {causes}", reason=Reason.REBOOT_NOT_ALLOWED, hint="see reboot.allow")
        described = partial(with_values, restored=restored, most=MAX_DESCRIBED)
        plan = await asyncio.to_thread(described, plan, old, desired.config)
        started = self.ports.clock.now()

        def planned() -> Update:
            record = Record(
                update_id=uuid.uuid4().hex,
                started=started,
                from_digest=bases[0].source.digest if bases else "",
                to_digest=desired.source.digest,
                to_meaning=desired.meaning,
                from_name=plan.from_name,
                to_name=plan.to_name,
                plan=plan_to_dict(plan),
                writes=tuple(step_to_pair(step) for step in _writes(old, desired.config, judged)),
                newly_managed=tuple(sorted(managed_keys(desired.config) - managed_keys(old))),
                arguments=changed_families(current, desired.config),
                os=OsProgress(target_to_dict(target) if target is not None else None),
                repairs=dirty,
                drifted=tuple(sorted(drifted)),
                notes=tuple(
                    f"warning: {warning.path} {warning.message}"
                    for warning in (
                        *left_out(old, desired.config, accepted, present),
                        *warnings(old, desired.config, host),
                        *judged.warnings,
                    )
                ),
            )
            current_config = bases[0].config if bases else None
            removal = removal_of(current_config, desired.config, confirmed.removes if confirmed else 0)
            return Update(record, desired.config, plan, basis=basis, unit_warnings=judged.warnings, removal=removal)

        if confirmed is not None and confirmed.digest != desired.source.digest:
            confirmed = None
        update = await asyncio.to_thread(planned)
        if confirmed is None or not confirmed.lockout:
            await check_login(self.ports, old, desired.config, update.writes)
        await check_target(self.ports, update, staged=False)
        await self._check_units(update, old, judged)
        await check_accounts(self.ports, update)
        await self._check_paths(update)
        update.add_notes(*await notes_on_masks(self.ports, update), *await notes_on_install(self.ports, update))
        return update

    async def _rejected(self, plan: Plan, old: MachineConfig, new: MachineConfig, restored: Files) -> frozenset[Action]:
        return await UnitChecks(self.ports.units).rejected(plan, old, new, self.ports.unit_files, restored)

    async def _with_other_units(self, host: HostView, old: MachineConfig, new: MachineConfig) -> HostView:
        """Return the view with the leaving units of which the host has another file, which then applies again, and
        those that are disabled again."""
        changes = await asyncio.to_thread(diff, old, new)
        leaving = {leaving_unit(change, old, new) for change in changes} - {""}
        units = {unit for unit in sorted(leaving) if await has_other_file(self.ports, unit)}
        disabled = await disabled_again(self.ports, enabled_only(old, new))
        return replace(host, other_unit_files=frozenset(units), disabled_again=disabled)

    async def _check_units(self, update: Update, old: MachineConfig, judged: Judged) -> None:
        """Raise ``InvalidInput`` for what the programs of the host, or systemd, would reject later."""
        new = update.new
        problems = list(judged.problems)
        for validator in self.validators:
            found_problems = await validator.check(old, new)
            problems += (problem for problem in found_problems if not problem.warning)
            update.add_notes(
                *(f"warning: {problem.path} {problem.message}" for problem in found_problems if problem.warning)
            )
        if problems:
            raise InvalidInput(f"{new.name} was refused", problems=problems)
        if self.policy_of_updates.strict_units:
            update.check_units()
        # With another OS, the units of the booted one say nothing.
        if update.target is None:
            problems += await UnitChecks(self.ports.units).policy_problems(
                update.plan, old, new, self.ports.unit_files, update.basis.restored if update.basis is not None else {}
            )
        if problems:
            text = f"the policy does not fit {new.name}"
            raise InvalidInput(text, reason=Reason.POLICY_INVALID, hint=Reason.POLICY_INVALID.hint, problems=problems)

    async def _restored(self, old: MachineConfig, new: MachineConfig) -> dict[str, FileTreeEntry]:
        """Return what the host gets back at paths that leave the config."""
        entries = {}
        for path in expand(old).keys() - expand(new).keys() - owned_manifests(old).keys():
            # A path that cannot be read is judged with those that cannot be written.
            with suppress(AgentError):
                if (entry := (await original_of(self.ports, path)).node) is not None:
                    entries[path] = entry
        return entries

    async def _check_paths(self, update: Update) -> None:
        """Raise ``Refused`` for what would stop the writing, before lease, drain and revert are spent on it."""
        writes = [step.path for step in update.writes if isinstance(step, WritePath)]
        removes = [step.path for step in update.writes if isinstance(step, RemovePath)]
        had = expand(update.basis.config) if update.basis is not None else {}
        trees = (expand(update.new), had)
        directories = [path for tree in trees for path, node in tree.items() if isinstance(node, Directory)]
        # What is in the place of a file that is fetched is kept with it: see ``Guard.before_disruption``.
        copied = [path for path in writes if path not in fetched_of(update.new)]
        survey = await self.ports.files.survey(copied, removes, directories)
        if obstacles := {**await self._other_owners(update.new, writes), **survey.obstacles}:
            raise Refused(
                f"{len(obstacles)} paths cannot be written",
                reason=Reason.PATH_BLOCKED,
                problems=[Problem(path, obstacle) for path, obstacle in sorted(obstacles.items())],
            )
        # The originals go into the store before the first write, and a full disk then would stop the update half-way.
        if survey.kept > MAX_KEPT:
            raise Refused(
                f"the files that this update replaces have {survey.kept} bytes together; at most {MAX_KEPT} are kept"
                " for a revert",
                reason=Reason.REVERT_TOO_LARGE,
            )
        tops = (
            f"warning: {top} does not exist on this host and is created{end}" for top, end in survey.new_tops.items()
        )
        update.add_notes(*tops)

    async def _other_owners(self, new: MachineConfig, writes: Sequence[str]) -> dict[str, str]:
        """Return the written paths whose user or group this host does not have, and why."""
        wanted = expand(new)
        named: dict[tuple[int | str | None, int | str | None], list[str]] = {}
        # An account of this update does not exist yet.
        coming = coming_accounts(new)
        for path in writes:
            if wanted[path].user in coming or wanted[path].group in coming:
                continue
            named.setdefault((wanted[path].user, wanted[path].group), []).append(path)
        obstacles: dict[str, str] = {}
        # Many files share a few owners.
        for paths in named.values():
            if problem := await self.ports.files.owner_problem(wanted[paths[0]]):
                obstacles |= dict.fromkeys(paths, problem)
        return obstacles

    async def _basis(
        self, new: MachineConfig, bases: Sequence[MachineConfig], *, dirty: bool, first: bool
    ) -> tuple[Basis, frozenset[str]]:
        """Return what is in force, as far as this update goes, and the drifted entries that it leaves as they are."""
        base = bases[0] if bases else await first_basis(self.ports, new)
        # The next revision of an operator is drift that no update overwrites, and that blocks none.
        owned = unchanged([f"file:{path}" for path in owned_manifests(base)], base, new)
        left_alone: frozenset[str] = frozenset()
        basis = Basis(base)
        # After an update that ended half-way, and on a first start, differences are expected and are no drift.
        if not (dirty or first):
            basis, drift, others = await self._drift(base, new)
            if not drift and not (others and self.on_drift == "repair"):
                if self.leaves_os:
                    return basis, left_alone
                old = await with_os(self.ports, base, [*bases, new], new, needed=not same_os(base, new))
                return replace(basis, config=old), left_alone
            self._check_drift(drift)
            if self.on_drift == "report":
                left_alone = unchanged((*others, *(problem.path for problem in drift)), base, new)
        needed = not self.leaves_os
        old = await in_force(self.ports, base, [*bases, new], new, left_alone=left_alone | owned, needed=needed)
        return replace(basis, config=with_os_of(base, old) if self.leaves_os else old), left_alone

    def _check_drift(self, drift: Sequence[Problem]) -> None:
        """Raise ``Refused`` (``Drifted``) for drift that the update may not begin with."""
        if self.on_drift == "repair":
            return
        # Another OS is not left alone: the new deployment would replace it, and may be what an operator left.
        problems = [
            problem for problem in drift if self.on_drift == "refuse" or problem.path.partition(":")[0] in OS_DOMAINS
        ]
        if problems:
            raise Refused(
                f"{len(problems)} managed entries were changed by another program",
                reason=Reason.DRIFTED,
                hint="put them back, or set on_drift: repair to have them overwritten",
                problems=problems,
            )

    async def _drift(self, base: MachineConfig, new: MachineConfig) -> tuple[Basis, Sequence[Problem], Collection[str]]:
        """Return what differs from the current config, and the part of it that is not what the new one wants anyway.

        Entries that users other than root can change are reported here, and only named in the third part.
        """
        wrong = await self._wrong(base, needed=not same_os(base, new))
        if not wrong:
            return Basis(base), (), ()
        still = await self._wrong(new, needed=not same_os(base, new))
        # An entry that leaves with the new config is drift, too: its removal would discard the change of an operator.
        named = {entry for entry in wrong if entry in still or not has_entry(new, entry)}
        strict, loose = await compare.divide(self.ports, base, {entry: wrong[entry] for entry in named})
        compare.report_contested(self.ports, loose, Record(to_name=new.name, from_name=base.name))
        basis = Basis(base, wrong, frozenset(wrong.keys() - named))
        return basis, tuple(Problem(entry, difference) for entry, difference in sorted(strict.items())), loose.keys()

    async def _wrong(self, config: MachineConfig, *, needed: bool) -> dict[str, str]:
        os = {} if self.leaves_os else await os_mismatches(self.ports, config, needed=needed)
        return {**await mismatches(self.ports, config), **os}

    async def _target(self, old: MachineConfig, new: MachineConfig, current: MachineConfig) -> OsTarget | None:
        """Return the deployment that the update needs; None if it leaves the OS as it is.

        Raises as ``Deployments.check_stageable``, and ``InvalidInput`` for a new image that cannot be verified.
        """
        changes = [change for change in diff(old, new) if change.domain in OS_DOMAINS]
        problems = [Problem(change.id, "changes") for change in changes]
        if changes and self.ports.os is None:
            raise Unreconcilable(NO_OS, reason=Reason.NO_DEPLOYMENTS, problems=problems)
        target = target_between(old, new)
        if self.ports.os is not None and target is not None:
            booted = await self.ports.os.booted()
            own = await own_arguments(self.ports, [current], new, booted)
            target = replace(target, own_kernel_arguments=own)
            if not unmet(target, booted):
                # The config has fewer requirements than before, and the host meets all of them.
                return None
            await self.ports.os.port.check_stageable(target)
        return target


def _writes(old: MachineConfig, new: MachineConfig, judged: Judged) -> Iterator[WriteStep]:
    """Yield the steps of an update. The enablement of a unit from nowhere is not touched, and that of a unit of the
    next OS is set although its entry may be the same as before."""
    enabled: set[str] = set()
    for step in write_steps(old, new):
        if isinstance(step, EnableUnit | DisableUnit | PresetUnit | RestoreUnit) and step.unit in judged.untouched:
            continue
        if isinstance(step, EnableUnit):
            enabled.add(step.unit)
        yield step
    for unit in sorted(judged.later - enabled):
        if (entry := new.units.get(unit)) is not None and entry.enabled:
            yield EnableUnit(unit)
