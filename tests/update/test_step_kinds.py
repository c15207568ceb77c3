# SPDX-License-Identifier: Apache-2.0
"""The rules of each kind of action, without an update around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

import pytest

from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.plan.change import KeyChange
from nodeagent.core.plan.policy import reload
from nodeagent.core.plan.steps import (
    ActStep,
    ClearState,
    LockUser,
    ReloadUnit,
    RemovePath,
    RestartUnit,
    SetPassword,
    StopUnit,
    WritePath,
    WriteStep,
    step_id,
)
from nodeagent.reasons import Reason
from nodeagent.update.record import UnitsBefore
from nodeagent.update.run import Run
from nodeagent.update.stages import write
from nodeagent.update.states import Apply, Leg, Phase, Revert
from nodeagent.update.steps.accounts import Accounts
from nodeagent.update.steps.act import act
from nodeagent.update.steps.clear_state import ClearStateWork
from nodeagent.update.steps.passwords import Passwords
from nodeagent.update.steps.paths import Paths
from nodeagent.update.steps.reload import ReloadWork
from nodeagent.update.steps.restart import RestartWork
from nodeagent.update.steps.step import ActionFailed
from nodeagent.update.steps.stop import StopWork
from nodeagent.update.steps.unit_links import KEY, NO_FILES
from tests.update.test_transitions import begun, plain
from tests.world.run import Host, config
from tests.world.units import FakeHealth, FakeUnit

pytestmark = pytest.mark.looptime

UNIT = "web.service"
BACK = Revert(undo_actions=True)


async def running(unit: FakeUnit | None, *, leg: Leg, before: Mapping[str, str]) -> tuple[Host, Run]:
    """A run on a host with ``unit``, whose states before the update were ``before``."""
    host = await plain()
    update = await begun(host, config("second", {"/etc/x": "1"}))
    host.world.units.pop(UNIT)
    if unit is not None:
        host.world.units[UNIT] = unit
    phase = Phase.REVERTING if isinstance(leg, Revert) else Phase.ACTING
    update.record = replace(update.record, phase=phase, leg=leg, units_before=UnitsBefore(states=dict(before)))
    # The host of this test took no lease.
    update.lease_checked_at = float("inf")
    return host, host.build().executor.attempt(update)


@pytest.mark.parametrize(
    ("leg", "before", "due"),
    [
        (Apply(), "active", StopUnit(UNIT)),
        (BACK, "active", RestartUnit(UNIT)),
        (BACK, "inactive", StopUnit(UNIT)),
        (BACK, "failed", StopUnit(UNIT)),
        (BACK, None, StopUnit(UNIT)),
    ],
)
async def test_only_a_revert_restarts_what_was_stopped_and_only_what_ran(
    leg: Leg, before: str | None, due: ActStep
) -> None:
    _, run = await running(FakeUnit(), leg=leg, before={} if before is None else {UNIT: before})
    step = StopUnit(UNIT)
    assert await StopWork(run, step, step_id(step), (step,)).due() == due


@pytest.mark.parametrize(
    ("unit", "due"),
    [
        (FakeUnit(), ReloadUnit(UNIT)),
        (FakeUnit(active="activating", sub="start"), RestartUnit(UNIT)),
        (FakeUnit(active="activating", sub="auto-restart"), ReloadUnit(UNIT)),
        (FakeUnit(active="failed"), ReloadUnit(UNIT)),
    ],
)
async def test_a_unit_that_is_starting_is_restarted_instead_of_reloaded(unit: FakeUnit, due: ActStep) -> None:
    _, run = await running(unit, leg=Apply(), before={UNIT: "active"})
    step = ReloadUnit(UNIT)
    assert await ReloadWork(run, step, step_id(step), (step,)).due() == due


@pytest.mark.parametrize("kind", [RestartWork, ReloadWork])
@pytest.mark.parametrize(
    ("leg", "before", "fails"),
    [(Apply(), "active", True), (Apply(), "failed", False), (Apply(), None, False), (BACK, "active", False)],
)
async def test_a_unit_that_ran_and_is_gone_fails_an_update_and_no_revert(
    kind: type[RestartWork | ReloadWork], leg: Leg, before: str | None, fails: bool
) -> None:
    _, run = await running(None, leg=leg, before={} if before is None else {UNIT: before})
    step = RestartUnit(UNIT) if kind is RestartWork else ReloadUnit(UNIT)
    work = kind(run, step, step_id(step), (step,))  # type: ignore[arg-type]
    if not fails:
        assert await work.applies() == f"{UNIT} is not on this host"
        return
    with pytest.raises(ActionFailed) as raised:
        await work.applies()
    assert (raised.value.reason, raised.value.unit, raised.value.curable) == (Reason.UNIT_NOT_FOUND, UNIT, False)


@pytest.mark.parametrize(
    ("unit", "obstacle"),
    [
        (FakeUnit(file=""), ""),
        (FakeUnit(file="enabled"), f"{UNIT} has a unit file of this host"),
        (FakeUnit(load="masked"), ""),
        (FakeUnit(active="failed", file=""), f"{UNIT} does not run"),
    ],
)
async def test_a_unit_is_stopped_if_it_runs_without_a_file(unit: FakeUnit, obstacle: str) -> None:
    _, run = await running(unit, leg=Apply(), before={UNIT: "active"})
    step = StopUnit(UNIT)
    assert await StopWork(run, step, step_id(step), (step,)).applies() == obstacle


async def test_a_template_is_stopped_although_it_never_runs_itself() -> None:
    host, run = await running(None, leg=Apply(), before={})
    host.world.units["web@.service"] = FakeUnit(active="inactive", file="")
    step = StopUnit("web@.service")
    assert await StopWork(run, step, step_id(step), (step,)).applies() == ""


@pytest.mark.parametrize(
    ("unit", "due"),
    [
        (FakeUnit(file=""), StopUnit(UNIT)),
        (FakeUnit(active="failed", file=""), RestartUnit(UNIT)),
        (FakeUnit(file="enabled"), RestartUnit(UNIT)),
    ],
)
async def test_a_unit_that_runs_and_whose_file_left_is_stopped_instead_of_restarted(
    unit: FakeUnit, due: ActStep
) -> None:
    _, run = await running(unit, leg=Apply(), before={UNIT: "active"})
    run.update.writes = (RemovePath(f"{UNIT_DIR}/{UNIT}"),)
    step = RestartUnit(UNIT)
    assert await RestartWork(run, step, step_id(step), (step,)).due() == due


async def test_a_unit_without_a_file_that_no_write_removed_is_restarted() -> None:
    _, run = await running(FakeUnit(file=""), leg=Apply(), before={UNIT: "active"})
    step = RestartUnit(UNIT)
    assert await RestartWork(run, step, step_id(step), (step,)).due() == step


@pytest.mark.parametrize(("leg", "values"), [(Apply(), ("old", "new")), (BACK, ("new", "old"))])
async def test_the_proof_of_a_reload_compares_the_values_of_its_direction(
    leg: Leg, values: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[KeyChange] = []

    async def reload_problem(_: object, unit: str, since: str, keys: Sequence[KeyChange] = ()) -> str:
        compared.extend(keys)
        return ""

    key = KeyChange("/etc/web", "limit", "old", "new", (reload(UNIT),))
    other = KeyChange("/etc/web", "name", "old", "new", ())
    monkeypatch.setattr(FakeHealth, "reload_problem", reload_problem)
    monkeypatch.setattr("nodeagent.update.steps.reload.keys_of", lambda _: (key, other))
    _, run = await running(FakeUnit(), leg=leg, before={UNIT: "active"})
    step = ReloadUnit(UNIT)
    await ReloadWork(run, step, step_id(step), (step,)).proof()
    assert [(change.before, change.after) for change in compared] == [values]


@pytest.mark.parametrize("kind", [RestartWork, ClearStateWork])
async def test_a_masked_unit_is_left_alone(kind: type[RestartWork | ClearStateWork]) -> None:
    _, run = await running(FakeUnit(load="masked"), leg=Apply(), before={UNIT: "active"})
    step = RestartUnit(UNIT) if kind is RestartWork else ClearState(UNIT, ("/var/lib/web",))
    work = kind(run, step, step_id(step), (step,))  # type: ignore[arg-type]
    assert await work.applies() == f"{UNIT} is masked"


async def test_health_is_noted_before_the_step_and_what_was_healthy_stays_so() -> None:
    host, run = await running(FakeUnit(), leg=Apply(), before={UNIT: "active"})
    step = ReloadUnit(UNIT)
    work = ReloadWork(run, step, step_id(step), (step,))
    await work.before()
    assert UNIT in run.record.units_before.healthy
    host.world.units[UNIT].health = "it does not answer"
    await work.before()
    assert UNIT in run.record.units_before.healthy


async def test_a_restart_that_is_done_leaves_no_mark_of_a_restart_under_way() -> None:
    host, run = await running(FakeUnit(), leg=Apply(), before={UNIT: "active"})
    step = RestartUnit(UNIT)
    await act(run, (step,))
    written = run.record.written
    assert written.done == {step_id(step)}
    assert (written.restarting, written.invocation) == ("", "")
    assert host.world.done[-1].endswith(f"restart {UNIT}")


async def test_a_restart_that_fails_leaves_no_mark_of_a_restart_under_way() -> None:
    _, run = await running(FakeUnit(fail_restarts=1), leg=Apply(), before={UNIT: "active"})
    with pytest.raises(ActionFailed):
        await act(run, (RestartUnit(UNIT),))
    written = run.record.written
    assert (written.restarting, written.invocation, written.done) == ("", "", frozenset())


async def test_the_runs_of_all_units_are_noted_before_the_first_restart_only() -> None:
    host, run = await running(FakeUnit(invocation=7), leg=Apply(), before={UNIT: "active", "app.service": "active"})
    host.world.units["app.service"].invocation = 3
    steps = (RestartUnit("app.service"), RestartUnit(UNIT))
    await RestartWork(run, steps[0], step_id(steps[0]), steps).before()
    assert run.record.written.runs == {"app.service": "3", UNIT: "7"}
    host.world.units[UNIT].invocation = 8
    work = RestartWork(run, steps[1], step_id(steps[1]), steps)
    await work.before()
    # systemd has restarted it along with the other one.
    assert (run.record.written.runs[UNIT], work.since) == ("7", "7")


@pytest.mark.parametrize(("invocation", "restarts"), [(2, 0), (1, 1)])
async def test_a_restart_after_a_kill_takes_place_only_if_it_did_not(invocation: int, restarts: int) -> None:
    step = RestartUnit(UNIT)
    begun = Apply(restarting=step_id(step), invocation="1")
    host, run = await running(FakeUnit(invocation=invocation), leg=begun, before={UNIT: "activating"})
    run.update.record = replace(run.record, leg=replace(begun, done=frozenset({step_id(RestartUnit("app.service"))})))
    await act(run, (RestartUnit("app.service"), step))
    assert sum(done.endswith(f"restart {UNIT}") for done in host.world.done) == restarts


async def test_a_reboot_cures_no_rejected_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reload_problem(_: object, unit: str, since: str, keys: Sequence[KeyChange] = ()) -> str:
        return "an unknown key"

    monkeypatch.setattr(FakeHealth, "reload_problem", reload_problem)
    _, run = await running(FakeUnit(), leg=Apply(), before={UNIT: "active"})
    with pytest.raises(ActionFailed) as rejected:
        await act(run, (ReloadUnit(UNIT),))
    assert (rejected.value.reason, rejected.value.curable) == (Reason.RELOAD_REJECTED, False)
    _, run = await running(FakeUnit(fail_restarts=1), leg=Apply(), before={UNIT: "active"})
    with pytest.raises(ActionFailed) as failed:
        await act(run, (RestartUnit(UNIT),))
    assert (failed.value.reason, failed.value.curable) == (Reason.JOB_FAILED, True)


async def test_a_unit_whose_start_condition_is_not_met_has_to_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def proof(_: RestartWork) -> None:
        raise AssertionError

    monkeypatch.setattr(RestartWork, "proof", proof)
    step = RestartUnit(UNIT)
    _, run = await running(FakeUnit(condition="ConditionPathExists=/x"), leg=Apply(), before={UNIT: "active"})
    await act(run, (step,))
    assert run.record.written.skipped == {step_id(step)}


WORK = {WritePath: Paths, RemovePath: Paths, SetPassword: Passwords, LockUser: Passwords}


@pytest.mark.parametrize("kind", get_args(WriteStep))
async def test_each_write_has_what_saves_and_restores_its_state(kind: type[WriteStep]) -> None:
    host = await plain()
    update = await begun(host, config("second", {"/etc/x": "1"}))
    paths = Paths(host.ports, update, NO_FILES)
    key = write.key_of(kind("x"))
    # The links of units are one state, with a snapshot of its own.
    assert key == KEY or isinstance(write._work_of(key, paths), WORK.get(kind, Accounts))
    with pytest.raises(KeyError):
        write._work_of("zone:x", paths)
