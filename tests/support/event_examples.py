# SPDX-License-Identifier: Apache-2.0
"""At least one example of each kind of event; those of a feature are ``EVENTS`` of its ``examples.py``."""

from __future__ import annotations

from typing import Final

from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.os_changes import OsChanges, PackageChange, PackageChangeKind
from nodeagent.errors import Cause
from nodeagent.reasons import reason_of
from nodeagent.update.history.lasting import Partial
from nodeagent.update.ports import events
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import DeploymentsChanged, Event, StagingAdvanced, StepProgress, UpdateContext
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.states import Phase
from tests.cli.daemon.fake_daemon import entry
from tests.support import examples

ABOUT = UpdateContext(Phase.ACTING, current="worker-1", desired="worker-2")
FIRST = UpdateContext(Phase.ACTING, desired="worker-2")
STEP = StepProgress("restart crio.service", 3, 9, 40)
ORDER: Final = (
    Deployment("a.1", "c1", "os", version="41.2", staged=True),
    Deployment("a.0", "c0", "os", digest="sha256:d0", booted=True),
    Deployment("a.9", "c9", "os"),
)
CHANGES: Final = OsChanges(
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
BASE: Final[tuple[Event, ...]] = (
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
            Cause(reason_of("WindowClosed"), "no window is open"),
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
    events.DeploymentsServed("one", "another"),
    events.StagedInspected(CHANGES),
    events.LeaseChanged(Holder("jane", "maintenance", "disk swap", "2026-11-21T03:00:00.000Z")),
    events.LeaseChanged(None),
    events.StatusProblem("settings", "TheReason", "the message"),
    events.ProblemSolved("settings", "the message"),
    events.UpdateFinished(HistoryEntry(**entry("u1", "worker-2")), 0),
    events.UpdateFinished(HistoryEntry(**entry("u1", "worker-2", "reverted", message="the message")), 1),
)
EXAMPLES: Final[tuple[Event, ...]] = (*BASE, *examples.listed("EVENTS"))
