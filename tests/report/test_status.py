# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace

from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.os_changes import OsChanges, PackageChange, PackageChangeKind
from nodeagent.errors import Cause
from nodeagent.reasons import reason_of
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.report.status_line import line
from nodeagent.update.history.lasting import Partial
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import (
    DeploymentsChanged,
    Event,
    LeaseChanged,
    PhaseEntered,
    SafePartsApplied,
    StagedInspected,
    StagingAdvanced,
    StepProgress,
    StepStarted,
    UpdateContext,
    UpdateDone,
    Warned,
)
from nodeagent.update.states import Phase
from tests.support import removed
from tests.support.schemas import status_to_dict

CONTRACT = {
    "documentation", "etcd_member", "failed_unit", "partial", "maintenance", "problems", "soft_reboots", "drift",
    "schema", "phase", "reason", "message", "since", "current", "desired", "boot_id", "update_id", "step",
    "deployments", "os_changes", "bootloader", "lease", "drain", "fence", "daemon", "current_digest",
    "desired_digest", "target", "reboot", "left_out", "reboot_request", "reboot_required",
    "trial", "busy_pods",
}  # fmt: skip


def run(*events: Event) -> Status:
    status = Status()
    for event in events:
        status = fold(status, event)
    return status


STEP = StepProgress("restart crio.service", 3, 9, 40)


def test_an_update_from_start_to_end() -> None:
    about = UpdateContext(Phase.ACTING, "u", "a", "b", "x", since="t")
    acting = run(
        PhaseEntered(about),
        StepStarted(about, STEP),
    )
    assert (acting.phase, acting.step, acting.current, acting.desired) == (Phase.ACTING, STEP, "a", "b")
    assert line(acting) == "Acting: restart crio.service (3/9)"
    ended = UpdateDone(replace(about, phase=Phase.RELEASING), "", 1.0, 0, "sha")
    done = fold(fold(acting, ended), PhaseEntered(UpdateContext(Phase.IDLE)))
    assert (done.current, done.desired, done.step, done.update_id) == ("b", "b", None, "")
    assert line(done) == "Idle: current config is b"


def test_the_kind_of_the_reboot() -> None:
    about = UpdateContext(Phase.REBOOTING, "u", "a", "b", "x", reboot=RebootKind.SOFT)
    going = [PhaseEntered(about), Warned(UpdateContext(Phase.REBOOTING), "of the cluster")]
    assert status_to_dict(run(*going), daemon="running")["reboot"] == "soft"
    going.append(Warned(replace(about, reboot=RebootKind.FULL), "the reboot is a full one"))
    assert status_to_dict(run(*going), daemon="running")["reboot"] == "full"
    going.append(PhaseEntered(replace(about, phase=Phase.VERIFYING, reboot=None)))
    assert status_to_dict(run(*going), daemon="running")["reboot"] is None


def test_safe_parts_leave_the_current_config_until_the_whole_one_is_done() -> None:
    waits = (("file:/etc/x", "Drain, Reboot"),)
    partial = Partial("p", "d", "b", Cause(reason_of("WindowClosed"), "none is open"), ("sshkey:core",), waits)
    about = UpdateContext(Phase.RELEASING, "u", "a", "b", "x", since="t")
    status = fold(replace(Status(), current="a", current_digest="c"), SafePartsApplied(about, partial))
    assert (status.current, status.current_digest, status.partial) == ("a", "c", partial)
    waiting = fold(status, PhaseEntered(replace(about, phase=Phase.LEASING), "no window is open", "WindowClosed"))
    assert line(waiting) == "Leasing: WindowClosed: no window is open: 1 change of b waits"
    shown = status_to_dict(waiting, daemon="running")["partial"]
    assert (shown["reason"], shown["message"]) == ("WindowClosed", "none is open")
    assert shown["waits"] == [{"change": "file:/etc/x", "for": "Drain, Reboot"}]
    assert fold(waiting, UpdateDone(about, "", 1.0, 0, "sha")).partial is None


def test_a_warning_does_not_move_the_phase() -> None:
    status = run(PhaseEntered(UpdateContext(Phase.WRITING)), Warned(UpdateContext(Phase.IDLE), "x"))
    assert status.phase is Phase.WRITING


def test_the_lease_is_shown_without_moving_the_phase() -> None:
    holder = Holder("alice", "maintenance", "disk swap", "t")
    status = run(PhaseEntered(UpdateContext(Phase.LEASING)), LeaseChanged(holder))
    shown = status_to_dict(status, daemon="running")
    assert shown["phase"] == "Leasing"
    assert shown["lease"]["holder"] == "alice"


def test_deployments_and_how_far_the_next_one_is() -> None:
    order = (
        Deployment("a.1", "c1", "os", version="2", staged=True, locked=True),
        Deployment("a.0", "c0", "os", booted=True),
    )
    staging = StepProgress("Importing layers", 3, 51, 5)
    about = UpdateContext(Phase.STAGING, "u")
    status = run(
        PhaseEntered(about),
        StagingAdvanced(about, staging, 7),
        DeploymentsChanged(order),
    )
    assert line(status) == "Staging: Importing layers (3/51)"
    shown = status_to_dict(status, daemon="running")
    assert (shown["phase"], shown["step"]["percent"]) == ("Staging", 5)
    assert shown["deployments"] == [
        {"checksum": "c1", "version": "2", "booted": False, "staged": True, "locked": True, "digest": ""},
        {"checksum": "c0", "version": "", "booted": True, "staged": False, "locked": None, "digest": ""},
    ]
    uncounted = StagingAdvanced(about, StepProgress("Staging deployment", 0, 0, 0), None)
    assert line(fold(status, uncounted)) == "Staging: Staging deployment"


def test_the_changes_of_a_staged_deployment_end_with_it() -> None:
    order = (Deployment("a.1", "c1", "os", staged=True), Deployment("a.0", "c0", "os", booted=True))
    packages = tuple(PackageChange(f"p{number}", PackageChangeKind.ADDED, "", "1-1") for number in range(300))
    found = OsChanges("a.1", packages, merged=("/etc/a",), fetched=1)
    status = run(DeploymentsChanged(order), StagedInspected(found), DeploymentsChanged(order))
    shown = status_to_dict(status, daemon="running")["os_changes"]
    assert (len(shown["packages"]), shown["counts"]["added"], shown["merged_count"]) == (200, 300, 1)
    assert json.loads(json.dumps(shown)) == shown
    assert status_to_dict(fold(status, DeploymentsChanged(order[1:])), daemon="running")["os_changes"] is None


def test_the_contract_has_all_its_keys() -> None:
    shown = status_to_dict(run(StepStarted(UpdateContext(Phase.ACTING), STEP)), daemon="stopped")
    assert set(shown) == CONTRACT - removed.words("status")
    assert shown["step"] == {"name": "restart crio.service", "index": 3, "count": 9, "percent": 40}
    assert json.loads(json.dumps(shown)) == shown
