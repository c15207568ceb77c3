# SPDX-License-Identifier: Apache-2.0
"""Put drifted entries back while no update is under way, with ``on_drift: repair``.

Only entries whose actions are None or DaemonReload: nothing restarts, so no lease is needed. Each write is atomic and
compared before and after, so a kill needs no record. During a maintenance, and while another holder has the node,
nothing is written: an operator may be at work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from nodeagent import log
from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.deployment import OS_DOMAINS
from nodeagent.core.plan.entries import only
from nodeagent.core.plan.policy import Policy
from nodeagent.core.plan.steps import (
    CreateUser,
    DisableUnit,
    EnableUnit,
    JoinGroup,
    LeaveGroup,
    LockUser,
    PresetUnit,
    RemovePath,
    RestoreUnit,
    RetireUser,
    SetPassword,
    UnitStep,
    WritePath,
    WriteStep,
)
from nodeagent.errors import AgentError, error_of
from nodeagent.features.drift.decide import RepairPace, describe_drift, plan_repair
from nodeagent.features.drift.reasons import DriftReason
from nodeagent.features.drift.view import drift_of
from nodeagent.reasons import Reason
from nodeagent.report.parts.registry import disruption_of
from nodeagent.report.status import Status
from nodeagent.update.next.preflight import Desired, OnDrift
from nodeagent.update.ports.host import Reporter
from nodeagent.update.record import half_way, in_effect
from nodeagent.update.run import Ports
from nodeagent.update.stages import compare
from nodeagent.update.stages.compare import mismatches
from nodeagent.update.steps import unit_links

TOPIC: Final = "drift repair"

# Seconds for a daemon-reload.
DAEMON_RELOAD: Final = 90.0

# What no comparison of files sees, and no write changes.
NEED_AN_UPDATE: Final = OS_DOMAINS | {"fips"}

# The place of the last error among the entries that are left.
FAILED: Final = ""


@dataclass(eq=False)
class DriftRepair:
    """Called by the loop when there is no update, so that neither begins during the other.

    ``policy`` returns the one of an update between two configs. ``on_drift`` may be set at any time.
    """

    ports: Ports
    reporter: Reporter
    shown: Callable[[], Status]
    load: Callable[[str], Awaitable[Desired]]
    policy: Callable[[MachineConfig, MachineConfig], Awaitable[Policy]]
    on_drift: OnDrift
    _pace: RepairPace = field(default_factory=RepairPace, init=False)
    # Entries that are left until they change, with the reason.
    _left: dict[str, str] = field(default_factory=dict, init=False)

    async def __call__(self) -> float | None:
        """Put back what may be put back now. Returns the seconds until the next attempt, None without one."""
        status = self.shown()
        if self.on_drift != "repair" or disruption_of(status) is not None or status.lease is not None:
            return None
        now = self.ports.clock.monotonic()
        drifted = {drift.entry: drift for drift in drift_of(status)}
        fights = self._pace.contended(drifted, now)
        self._left = {entry: message for entry, message in self._left.items() if entry in drifted}
        due = self._pace.due(drifted.keys() - self._left.keys(), now)
        if due:
            try:
                await self._repair(due)
            except AgentError as error:
                self._pace.tried(due, (), now)
                self._left[FAILED] = f"{error.reason}: {error}"
        # Entries that another program changes back are not left alone: each repair is tried again after a longer pause.
        problems = dict(self._left)
        for entry, count in fights.items():
            who = describe_drift([drifted[entry]])
            problems[entry] = f"{who}; put back {count} times, and changed again each time"
        self._show(problems, contended=bool(fights))
        return self._pace.wait(drifted.keys() - self._left.keys(), now)

    async def _repair(self, due: frozenset[str]) -> None:
        """Put these entries back, or note why they are left."""
        record = await self.ports.store.load()
        digest = in_effect(record, await self.ports.store.current())
        if not digest or half_way(record):
            return
        config = (await self.load(digest)).config
        for entry in due:
            if entry.partition(":")[0] in NEED_AN_UPDATE:
                self._left[entry] = f"{entry}: putting it back requires an update of the OS"
        wrong, _ = await compare.divide(self.ports, config, await mismatches(self.ports, only(config, due)))
        # The host is at this config already, so the policy is the one of an update from it to itself.
        repair = plan_repair(config, wrong, await self.policy(config, config))
        self._left |= {entry: f"{entry}: putting it back requires {needed}" for entry, needed in repair.left.items()}
        for step in repair.steps:
            await self._write(config, step)
        # Only the entries that are put back: others that differ require more than this.
        left = frozenset(wrong.keys() - repair.entries)
        if any(isinstance(step, UnitStep) for step in repair.steps):
            links = await unit_links.plan_links(self.ports, config, repair.steps, {}, left=left)
            await unit_links.put_links(self.ports, links, ())
        if repair.daemon_reload:
            await self.ports.units.daemon_reload(DAEMON_RELOAD)
        still = await mismatches(self.ports, only(config, repair.entries)) if repair.entries else {}
        self._pace.tried(due, repair.entries - still.keys(), self.ports.clock.monotonic())
        if done := sorted(repair.entries - still.keys()):
            log.get(__name__).info(f"put back {', '.join(done)}, as on_drift requires")

    async def _write(self, config: MachineConfig, step: WriteStep) -> None:
        ports = self.ports
        match step:
            case WritePath(path):
                node = expand(config)[path]
                # Compared again right before the write: an admin may have put the entry back, or be editing it.
                if await ports.files.differs(path, node):
                    await ports.files.install(path, node)
            case SetPassword(user):
                await ports.users.set_password_hash(user, config.users[user].password_hash or "!")
            case EnableUnit() | DisableUnit() | PresetUnit() | RestoreUnit():
                # The links follow, from all entries together.
                pass
            case CreateUser(user):
                await ports.users.create(config.users[user])
            case JoinGroup(membership):
                user, _, group = membership.partition(":")
                await ports.users.set_member(user, group, member=True)
            case RemovePath() | LockUser() | RetireUser() | LeaveGroup():
                # Nothing leaves a config that is compared with itself.
                pass
            case _:
                assert_never(step)

    def _show(self, problems: Mapping[str, str], *, contended: bool) -> None:
        if problems:
            reason = DriftReason.DRIFT_CONTENDED if contended else Reason.DRIFTED
            self.reporter.problem(TOPIC, error_of(reason, "; ".join(problems[key] for key in sorted(problems))))
        else:
            self.reporter.solved(TOPIC, "drifted entries are put back again")
