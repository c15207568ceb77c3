"""Everything that is decided before anything is touched: is this desired config good, applicable, and what does it
take? Refusing is cheap here and nowhere later."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from nodeagent.agent.update import contested
from nodeagent.agent.update.actions import missing_units
from nodeagent.agent.update.drop_ins import check_dropins
from nodeagent.agent.update.run import Ports, Update, UpdatePolicy
from nodeagent.agent.update.verification import in_force, mismatches, os_mismatches, with_os
from nodeagent.agent.update.writing import managed_keys
from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import ConfigSource, MachineConfig
from nodeagent.core.config.meaning import meaning
from nodeagent.core.config.parse import parse
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.deployment import OS_DOMAINS, OsTarget, target_between, target_to_dict, unmet
from nodeagent.core.plan.effective_os import same_os
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.plan_json import plan_to_dict
from nodeagent.core.plan.policy import Policy
from nodeagent.core.plan.steps import RemovePath, WritePath, step_to_pair, write_steps
from nodeagent.core.update.ports.host import Validator
from nodeagent.core.update.record import OsProgress, Record
from nodeagent.core.update.survey import MAX_KEPT
from nodeagent.domains import warnings
from nodeagent.domains.checks import check_update
from nodeagent.errors import InvalidInput, Problem, Refused, Unreconcilable
from nodeagent.reasons import Reason

__all__ = ["Desired", "Preflight", "read_source"]

NO_CONFIG = MachineConfig("")


@dataclass(frozen=True, slots=True)
class Desired:
    """A desired config as read: its text, what it was parsed into, and what that means for a host. Made in the thread
    that parses, because of the digest."""

    source: ConfigSource
    config: MachineConfig
    meaning: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "meaning", meaning(self.config))


def read_source(source: ConfigSource) -> Desired:
    """Raises ``InvalidInput``. Not for the event loop."""
    return Desired(source, parse(source.text))


@dataclass(frozen=True, slots=True)
class Preflight:
    """``policy`` is the one for an update from one config to another, as it is by then."""

    ports: Ports
    policy_of_updates: UpdatePolicy
    validators: Sequence[Validator]
    policy: Callable[[MachineConfig, MachineConfig], Awaitable[Policy]]
    repair_drift: bool

    async def prepare(self, desired: Desired, known: Sequence[Desired], *, dirty: bool, first: bool) -> Update:
        """The update to run. ``known`` are the configs whose entries the disk may hold, the current one first;
        ``dirty``: an update ended half-way, so the disk holds a mixture of them.

        Raises ``InvalidInput``, ``Unreconcilable``, ``Refused``. Touches nothing.
        """
        old = await self._old(desired.config, [k.config for k in known], dirty=dirty, first=first)
        check_update(old, desired.config, desired.config.name)
        plan = make_plan(
            old,
            desired.config,
            await self.policy(old, desired.config),
            from_name=known[0].config.name if known else "",
            to_name=desired.config.name,
        )
        target = await self._target(old, desired.config, plan)
        self._check_reboot(plan)
        update = self._update(desired, known, old, plan, target, repairs=dirty)
        problems = tuple(await missing_units(self.ports, update, desired.config))
        if target is None:  # another OS may bring other units
            problems += await check_dropins(self.ports.units, old, desired.config)
        for validator in self.validators:
            problems += tuple(await validator.check(old, desired.config))
        if problems:
            raise InvalidInput(f"{desired.config.name} was refused", problems=problems)
        await self._check_paths(update)
        return update

    async def _check_paths(self, update: Update) -> None:
        """Raise ``Refused`` for what would stop the writing, before lease, drain and revert are spent on it."""
        writes = [step.path for step in update.writes if isinstance(step, WritePath)]
        removes = [step.path for step in update.writes if isinstance(step, RemovePath)]
        found = await self.ports.files.survey(writes, removes)
        if found.obstacles:
            raise Refused(
                f"{len(found.obstacles)} paths cannot be written",
                reason=Reason.PATH_BLOCKED,
                problems=[Problem(path, why) for path, why in sorted(found.obstacles.items())],
            )
        if found.kept > MAX_KEPT:
            raise Refused(
                f"the files that this update replaces have {found.kept} bytes together; at most {MAX_KEPT} are kept"
                " for a revert",
                reason=Reason.REVERT_TOO_LARGE,
            )

    async def _old(
        self, new: MachineConfig, known: Sequence[MachineConfig], *, dirty: bool, first: bool
    ) -> MachineConfig:
        """What is in force, as far as this update goes."""
        base = known[0] if known else replace(new, files={}, units={}, users={})
        if not (dirty or first):
            drift = await self._drift(base, new)
            if not drift:
                return await with_os(self.ports, base, [*known, new], new, needed=not same_os(base, new))
            if not self.repair_drift:
                raise Refused(
                    f"{len(drift)} managed entries were changed by another program",
                    reason=Reason.DRIFTED,
                    hint="put them back, or set on_drift: repair to have them overwritten",
                    problems=drift,
                )
        return await in_force(self.ports, base, [*known, new], new)

    async def _drift(self, base: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
        """What differs from the current config and is not what the new one wants anyway."""
        needed = not same_os(base, new)
        wrong = {**await mismatches(self.ports, base), **await os_mismatches(self.ports, base, needed=needed)}
        if not wrong:
            return ()
        still = {**await mismatches(self.ports, new), **await os_mismatches(self.ports, new, needed=needed)}
        named = {entry for entry in wrong if entry in still or not _has(new, entry)}
        strict, loose = await contested.divide(self.ports, base, {entry: wrong[entry] for entry in named})
        contested.report(self.ports, loose, Record(to_name=new.name, from_name=base.name))
        return tuple(Problem(entry, why) for entry, why in sorted(strict.items()))

    async def _target(self, old: MachineConfig, new: MachineConfig, plan: Plan) -> OsTarget | None:
        """Return the deployment that the update needs; None if it leaves the OS as it is.

        Raises as ``Deployments.check_stageable``, and ``InvalidInput`` for a new image that cannot be verified.
        """
        changes = [p for p in plan.changes if p.change.domain in OS_DOMAINS]
        problems = [Problem(p.change.id, "changes") for p in changes]
        if changes and self.ports.os is None:
            raise Unreconcilable(
                "this host has no deployments of an operating system: it is not booted from an image",
                reason=Reason.NO_DEPLOYMENTS,
                problems=problems,
            )
        target = target_between(old, new)
        if self.ports.os is not None and target is not None:
            if not unmet(target, await self.ports.os.booted()):
                return None  # the config speaks of less than before, and the host has all of it
            await self.ports.os.check_stageable(target)
        return target

    def _check_reboot(self, plan: Plan) -> None:
        if plan.reboot and not self.policy_of_updates.may_reboot:
            why = next(", ".join(a.because) for a in plan.actions if a.type == "Reboot")
            raise Refused(f"a reboot is needed for {why}", reason=Reason.REBOOT_NOT_ALLOWED, hint="see reboot.allow")

    def _update(
        self,
        desired: Desired,
        known: Sequence[Desired],
        old: MachineConfig,
        plan: Plan,
        target: OsTarget | None,
        *,
        repairs: bool,
    ) -> Update:
        record = Record(
            update_id=uuid.uuid4().hex,
            started=self.ports.clock.now(),
            from_digest=known[0].source.digest if known else "",
            to_digest=desired.source.digest,
            to_meaning=desired.meaning,
            from_name=plan.from_name,
            to_name=plan.to_name,
            plan=plan_to_dict(plan),
            writes=tuple(step_to_pair(step) for step in write_steps(old, desired.config)),
            newly_managed=tuple(sorted(managed_keys(desired.config) - managed_keys(old))),
            os=OsProgress(target_to_dict(target) if target is not None else None),
            repairs=repairs,
            notes=tuple(f"warning: {found.path} {found.message}" for found in warnings(old, desired.config)),
        )
        return Update(record, desired.config, plan)


def _has(config: MachineConfig, entry: str) -> bool:
    domain, _, key = entry.partition(":")
    match domain:
        case "file":
            return key in config.files
        case "unit":
            return key in config.units
        case "sshkey" | "password":
            return bool(config.users) and (domain != "sshkey" or bool(expand(MachineConfig("", users=config.users))))
        case _:
            return True  # fields of the OS: each config has them all
