# SPDX-License-Identifier: Apache-2.0
"""Entries of the journal. The messages of all events are in ``tests/golden/journal.txt``."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from nodeagent import log
from nodeagent.agent.report.journal import sentence, to_journal
from nodeagent.core.boot import RebootKind
from nodeagent.core.coordination.drain import PodWait, Remaining
from nodeagent.core.plan.bootloader import BootloaderCheck, BootloaderState
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.os_changes import OsChanges, PackageChange, PackageChangeKind
from nodeagent.core.plan.secure_boot import KernelTrust
from nodeagent.errors import Cause
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.update.history.lasting import Partial
from nodeagent.update.ports import events
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import DeploymentsChanged, Event, StagingAdvanced, StepProgress, UpdateContext
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.states import Phase
from tests.cli.daemon.fake_daemon import entry
from tests.support.golden import Golden


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []

    def event(kind: type[Event], message: str, **fields: Any) -> None:
        entries.append({"kind": kind, "message": message, **fields})

    monkeypatch.setattr(log, "event", event)
    return entries


def test_progress_is_a_line_for_every_tenth_only(journal: list[dict[str, Any]]) -> None:
    step = StepProgress("Importing layers", 3, 51, 5)
    for routine in (False, True):
        to_journal(StagingAdvanced(UpdateContext(Phase.STAGING), step, 7, routine), Status())
    assert [entry["message"] for entry in journal] == ["staging: Importing layers (3/51)"] * 2
    assert [entry["priority"] for entry in journal] == [None, log.DEBUG]
    assert journal[0]["fetched_bytes"] == 7
    assert "routine" not in journal[0]


ABOUT = UpdateContext(Phase.ACTING, current="worker-1", desired="worker-2")
FIRST = UpdateContext(Phase.ACTING, desired="worker-2")
STEP = StepProgress("restart crio.service", 3, 9, 40)
PODS = tuple(Remaining("shop", f"web-{number}", PodWait.REQUESTED) for number in range(7))
ORDER = (
    Deployment("a.1", "c1", "os", version="41.2", staged=True),
    Deployment("a.0", "c0", "os", digest="sha256:d0", booted=True),
    Deployment("a.9", "c9", "os"),
)
CHECK = BootloaderCheck("EFI", BootloaderState.OLDER, "shim-15.8-3", "shim-16.1-3", kernel=KernelTrust.REFUSED)
CHANGES = OsChanges(
    "a.1",
    (PackageChange("bash", PackageChangeKind.UPGRADED, "5.1-1", "5.2-1"),),
    kernel=("6.1", "6.1"),
    same_initramfs=True,
    same_selinux_policy=False,
    arguments_added=("audit=1",),
    arguments_removed=("quiet",),
    merged=("/etc/a", "/etc/b"),
    fetched=734_000_000,
)
WHY = ("the message", "TheReason")
CASES: tuple[Event, ...] = (
    events.UpdateStarted(ABOUT, "Reload crio.service", 3),
    events.UpdateStarted(FIRST, "None", 3),
    events.UpdateResumed(ABOUT, "verify"),
    events.PhaseEntered(ABOUT),
    events.PhaseEntered(ABOUT, *WHY),
    events.StepStarted(ABOUT, STEP),
    events.StepDone(ABOUT, STEP, 1.25),
    events.StepSkipped(ABOUT, STEP, "crio.service is not on this host"),
    events.StepSkipped(ABOUT, STEP, *WHY),
    events.StepFailed(ABOUT, STEP, *WHY),
    StagingAdvanced(ABOUT, STEP, None),
    events.FenceChanged(ABOUT, None, "ended"),
    events.UpdateWaiting(ABOUT, *WHY),
    events.UpdateCancelled(ABOUT, "root cancelled the update to worker-2", "Cancelled"),
    events.FallbackChosen(ABOUT, *WHY),
    events.FallbackChosen(ABOUT, *WHY, RebootKind.SOFT),
    events.RevertStarted(ABOUT, *WHY),
    events.RevertStarted(FIRST, *WHY),
    events.HostDegraded(ABOUT, *WHY),
    events.ConfigRefused(ABOUT, *WHY),
    events.SafePartsApplied(
        ABOUT,
        Partial(
            "p",
            "d",
            "worker-2",
            Cause(Reason.WINDOW_CLOSED, "no window is open"),
            ("sshkey:core",),
            tuple((f"file:/etc/{name}", "Drain, Reboot") for name in "abcdef"),
        ),
    ),
    events.UpdateDone(ABOUT, "", 1.0, 0, "d"),
    events.UpdateDone(ABOUT, "after a fallback reboot", 1.0, 1, "d"),
    events.Warned(ABOUT, *WHY),
    events.DaemonStarted("VERSION"),
    events.DaemonStopped(),
    events.DesiredChanged("worker-2", "d"),
    events.DesiredChanged("", ""),
    DeploymentsChanged(ORDER),
    events.StagedInspected(CHANGES),
    events.BootloaderChecked(CHECK),
    events.DrainAdvanced(PODS),
    events.DrainAdvanced(()),
    events.LeaseChanged(Holder("jane", "maintenance", "disk swap", "2026-11-21T03:00:00.000Z")),
    events.LeaseChanged(None),
    events.MaintenanceChanged(None, message="the message"),
    events.DriftChanged("worker-1", (), "the message"),
    events.EtcdMemberChanged(None, "the message"),
    events.EtcdMemberChanged(events.MemberProgress("1", "join", "jane", "now", "the message"), "the message"),
    events.StatusProblem("settings", "TheReason", "the message"),
    events.ProblemSolved("settings", "the message"),
    events.UpdateFinished(HistoryEntry(**entry("u1", "worker-2")), 0),
    events.UpdateFinished(HistoryEntry(**entry("u1", "worker-2", "reverted", message="the message")), 1),
)


def test_the_packages_of_a_staged_deployment_are_no_field_of_the_entry(journal: list[dict[str, Any]]) -> None:
    to_journal(events.StagedInspected(CHANGES), Status(os_changes=CHANGES))
    assert "packages" not in str(journal[0].keys())


def test_the_message_of_each_event(golden: Golden) -> None:
    assert {type(event) for event in CASES} == set(get_args(Event))
    lines = [f"{type(event).__name__}: {sentence(event, Status(current='worker-1'))}\n" for event in CASES]
    golden("journal", "events", "".join(lines))


def test_deployments_are_no_field_of_the_entry(journal: list[dict[str, Any]]) -> None:
    to_journal(DeploymentsChanged(ORDER), Status(deployments=ORDER))
    assert "deployments" not in journal[0]
