"""Verify that the host matches a config, from the state of the host and never from the record.

``mismatches`` compares files, units and users; ``watch_units`` checks that restarted units stay up. A unit is healthy,
unhealthy, or not decided yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from nodeagent.agent.update.actions import NOT_RUNNING, curable, unit_steps
from nodeagent.agent.update.own_arguments import own_arguments
from nodeagent.agent.update.restarts import along_before
from nodeagent.agent.update.run import Ports, Progress, Run
from nodeagent.agent.update.unit_links import missing_links
from nodeagent.core.config.file_tree import FileTreeEntry, expand
from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig, UnitEntry
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.effective import Candidate, asks_of_os, effective, mismatches_of, os_in_force
from nodeagent.core.plan.static_pods import owned_manifests
from nodeagent.core.plan.steps import ReloadUnit, RestartUnit, step_id
from nodeagent.core.plan.unit_origin import Brought
from nodeagent.core.update.drift import entries_by_path
from nodeagent.core.update.ports.host import UnitState
from nodeagent.errors import AgentError, Unreconcilable
from nodeagent.reasons import Reason

# Seconds between two checks of units that settle; only for the settle time of one update.
PERIOD = 1.0

# Seconds within which systemd describes a unit. A longer delay does not count against the unit.
PROMPT = 2.0

# States of systemctl is-enabled. A static, indirect or generated unit has no links of its own, so both sets contain it.

ENABLED = frozenset({"enabled", "enabled-runtime", "alias", "static", "indirect", "generated", "linked"})
NOT_ENABLED = frozenset({"disabled", "static", "indirect", "generated", "linked", "masked", "transient", ""})


class VerifyFailed(AgentError):
    """``curable``: a reboot may help. ``unit`` is the one that is not well."""

    default_reason = Reason.VERIFY_FAILED

    def __init__(self, message: str, *, reason: Reason | None = None, curable: bool = False, unit: str = "") -> None:
        super().__init__(message, reason=reason)
        self.curable = curable
        self.unit = unit


async def mismatches(
    ports: Ports, config: MachineConfig, *, watched: bool = False, expected: Callable[[str], bool] | None = None
) -> dict[str, str]:
    """Return what differs from ``config``, by entry: ``file:/etc/x``, ``unit:x.service``, ``sshkey:core``,
    ``password:core``. For the OS see ``os_mismatches``. Static pods of an operator, which no update writes, are left
    out unless ``watched``. A unit that is missing is not compared, unless it is ``expected`` to be there later."""
    owner = entries_by_path(config)
    owned = owned_manifests(config)
    wrong: dict[str, str] = {}
    for path, node in expand(config).items():
        if path in owned and not watched:
            continue
        if why := await _difference(ports, path, node):
            why += "; an operator writes it" if path in owned else ""
            entry = owner[path]
            wrong.setdefault(entry, why if entry == f"file:{path}" else f"{path}: {why}")
    lacking = await missing_links(ports, config)
    for unit in config.units.values():
        lacks = lacking.get(unit.name)
        if f"unit:{unit.name}" not in wrong and (why := await _enablement(ports, unit, expected, lacks)):
            wrong[f"unit:{unit.name}"] = why
    core = config.users.get(CORE_USER)
    if (
        core is not None
        and core.password_hash is not None
        and await ports.users.password_hash(CORE_USER) != core.password_hash
    ):
        wrong[f"password:{CORE_USER}"] = "has another password hash"
    return wrong


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
    found = [
        Candidate(
            config, (await mismatches(ports, config, watched=True, expected=brings)).keys() - frozenset(left_alone)
        )
        for config in candidates
    ]
    return effective(await with_os(ports, base, candidates, new, needed=needed), found, new)


async def with_os(
    ports: Ports,
    base: MachineConfig,
    candidates: Sequence[MachineConfig],
    new: MachineConfig,
    *,
    needed: bool = True,
) -> MachineConfig:
    """Return ``base`` with the booted OS, whichever update brought it.

    Without ``needed`` the update changes nothing of the OS, and an rpm-ostreed that does not answer is ignored: the
    update may be about to repair it.
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


class _Health(Enum):
    GOOD = "good"
    BAD = "bad"
    NOT_YET = "not yet"


@dataclass(frozen=True, slots=True)
class _UnitCheck:
    health: _Health
    why: str
    # Unit to (invocation id, restarts by systemd).
    runs: Mapping[str, tuple[str, int]]
    # Seconds for which systemd did not answer.
    delay: float = 0.0
    # Whether a reboot may help.
    curable: bool = True
    # The unit that ``why`` is about.
    unit: str = ""


def _judge(state: UnitState, before: str, *, rebooted: bool) -> tuple[_Health, str]:
    """Return the health of a unit and the cause if it is not good.

    ``before`` is its active state before the update; "" for a unit that did not exist or must be active afterwards.
    """
    # The order of the cases matters: the exceptions for a unit that need not run come before its failures.
    oneshot = state.type == "oneshot"
    match state.active:
        case "active" | "reloading" | "refreshing":
            return _Health.GOOD, ""
        case "failed" | "inactive" if before in NOT_RUNNING:
            # The unit did not run before the update.
            return _Health.GOOD, ""
        case "activating" if state.sub == "auto-restart" and before in NOT_RUNNING:
            return _Health.GOOD, ""
        case "inactive" if state.condition:
            # systemd does not start the unit, and the job counts as done.
            return _Health.GOOD, ""
        case "failed":
            return _Health.BAD, f"{state.name} failed ({state.result})"
        case "activating" if state.sub == "auto-restart":
            return _Health.BAD, f"{state.name} died and is being restarted ({state.result})"
        # A oneshot unit is inactive after it has run. After a reboot the invocation id shows that it ran in this boot.
        case "inactive" if oneshot and state.result == "success" and not (rebooted and not state.invocation_id):
            return _Health.GOOD, ""
        case "inactive" if state.triggered_by and state.result in ("", "success"):
            # The unit is started on demand and may end again.
            return _Health.GOOD, ""
        case "inactive" if rebooted and state.file not in ("enabled", "enabled-runtime"):
            # No other unit starts it at boot.
            return _Health.GOOD, ""
        case "inactive" if not rebooted:
            return _Health.BAD, f"{state.name} stopped ({state.result})"
        case _:
            return _Health.NOT_YET, f"{state.name} is {state.active}"


async def _check(run: Run, units: Sequence[str]) -> _UnitCheck:
    health, why, delay, helps, ill_unit = _Health.GOOD, "", 0.0, True, ""
    runs: dict[str, tuple[str, int]] = {}
    before, rebooted = run.record.units_before, run.record.written.reboots > 0
    for unit in units:
        began = run.ports.clock.monotonic()
        state = await run.ports.units.state(unit)
        delay += max(0.0, run.ports.clock.monotonic() - began - PROMPT)
        if state.load in ("not-found", "masked"):
            continue
        runs[unit] = (state.invocation_id, state.restarts)
        found, reason = _judge(state, before.states.get(unit, ""), rebooted=rebooted)
        # A health check that failed before the update does not count against the new config.
        if found is _Health.GOOD and unit in before.healthy and (ill := await run.ports.health.check(unit)):
            found = _Health.BAD if await run.ports.health.lasting(unit) else _Health.NOT_YET
            reason = f"{unit}: {ill}"
        if found is not _Health.GOOD:
            ended = state.active == "failed" or state.sub == "auto-restart"
            helps = curable(run.update, unit, state.result if ended else "")
        if found is _Health.BAD:
            return _UnitCheck(found, reason, runs, delay, helps, unit)
        if found is _Health.NOT_YET:
            health, why, ill_unit = found, reason, unit
    return _UnitCheck(health, why, runs, delay, helps, ill_unit)


async def watch_units(run: Run, progress: Progress) -> None:
    """Return when every unit that the plan acts on was up for the settle time without a restart. Raise
    ``VerifyFailed`` otherwise.

    If a service of the host was away just now, units that went down with it have the time for verification to come
    back, as after each outage that is seen here.
    """
    if not (units := _acted_on(run)):
        return
    policy, clock = run.policy, run.ports.clock.monotonic
    deadline = clock() + policy.verify_timeout
    first: _UnitCheck | None = None
    since = clock()
    outages, excused = run.ports.units.outages(), run.update.repeated
    while True:
        check = await _check(run, units)
        # During that time systemd did not answer, so it says nothing about the units.
        deadline += check.delay
        if run.ports.units.outages() != outages:
            outages, excused, first = run.ports.units.outages(), True, None
            deadline = clock() + policy.verify_timeout
            run.update.progressed()
        if check.health is not _Health.GOOD and excused and clock() < deadline:
            first = None
            progress(f"{check.why}; waiting for it", deadline)
            await asyncio.sleep(PERIOD)
            continue
        if check.health is _Health.BAD:
            raise VerifyFailed(check.why, reason=Reason.UNIT_UNHEALTHY, curable=check.curable, unit=check.unit)
        if check.health is _Health.GOOD:
            if first is None:
                first, since = check, clock()
            elif check.runs != first.runs:
                if not excused:
                    _check_restarts(run, first, check)
                # Restarted by an operator, or by another program: watch the new run.
                first, since = check, clock()
            if clock() - since >= policy.settle:
                return
            progress("the restarted units run; they are watched", since + policy.settle)
        elif first is not None:
            why = f"{check.why} again after it was up"
            raise VerifyFailed(why, reason=Reason.UNIT_UNHEALTHY, curable=check.curable, unit=check.unit)
        # A watch that began in time may end: otherwise a settle time near the limit would leave no time to come back.
        if clock() >= deadline and (first is None or since >= deadline):
            why = f"{check.why or 'units'} after {policy.verify_timeout:.0f} s"
            raise VerifyFailed(why, reason=Reason.VERIFY_LATE, curable=check.curable, unit=check.unit)
        if first is None:
            progress(f"{check.why}; waiting for it", deadline)
        left = PERIOD if first is None else policy.settle - (clock() - since)
        await asyncio.sleep(min(PERIOD, max(left, 0.05)))


@dataclass(frozen=True, slots=True)
class RestartedUnits:
    """The units that the plan acted on, which were up. ``check`` raises ``VerifyFailed`` for one that has ended."""

    run: Run
    first: _UnitCheck
    outages: int

    @classmethod
    async def of(cls, run: Run) -> RestartedUnits:
        return cls(run, await _check(run, _acted_on(run)), run.ports.units.outages())

    async def check(self) -> None:
        if self.run.ports.units.outages() != self.outages:
            # They may have ended with the service of the host that was away.
            return
        now = await _check(self.run, _acted_on(self.run))
        if now.health is _Health.BAD:
            raise VerifyFailed(now.why, reason=Reason.UNIT_UNHEALTHY, curable=now.curable, unit=now.unit)
        # A program that crashes in a loop with pauses is active most of the time, so its restarts are counted.
        _check_restarts(self.run, self.first, now)


def _acted_on(run: Run) -> list[str]:
    steps = [step for step in unit_steps(run.update) if isinstance(step, RestartUnit | ReloadUnit)]
    done = [step for step in steps if step_id(step) not in run.record.written.skipped]
    restarted = any(isinstance(step, RestartUnit) for step in done)
    return [*(step.unit for step in done), *(along_before(run) if restarted else ())]


def _check_restarts(run: Run, first: _UnitCheck, now: _UnitCheck) -> None:
    """Raise ``VerifyFailed`` if systemd restarted a unit that ended."""
    for unit, (_, restarts) in now.runs.items():
        if restarts > first.runs.get(unit, ("", 0))[1]:
            helps = curable(run.update, unit, "exit-code")
            raise VerifyFailed(f"{unit} did not stay up", reason=Reason.UNIT_UNHEALTHY, curable=helps, unit=unit)
