# SPDX-License-Identifier: Apache-2.0
"""At least one example of each kind of event."""

from __future__ import annotations

from typing import Final

from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.os_changes import OsChanges, PackageChange, PackageChangeKind
from nodeagent.errors import Cause
from nodeagent.features.bootloader.decide.check import BootloaderCheck, BootloaderState
from nodeagent.features.bootloader.decide.secure_boot import KernelTrust
from nodeagent.features.bootloader.events import BootloaderChecked
from nodeagent.features.cluster.decide.drain import PodWait, Remaining
from nodeagent.features.cluster.events import DrainAdvanced
from nodeagent.features.drift.events import DriftChanged
from nodeagent.features.etcd_members.events import EtcdMemberChanged, MemberProgress
from nodeagent.features.fence.events import FenceChanged
from nodeagent.features.maintenance.events import MaintenanceChanged
from nodeagent.reasons import reason_of
from nodeagent.update.history.lasting import Partial
from nodeagent.update.ports import events
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import DeploymentsChanged, Event, StagingAdvanced, StepProgress, UpdateContext
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.states import Phase
from tests.cli.daemon.fake_daemon import entry

ABOUT = UpdateContext(Phase.ACTING, current="worker-1", desired="worker-2")
FIRST = UpdateContext(Phase.ACTING, desired="worker-2")
STEP = StepProgress("restart crio.service", 3, 9, 40)
PODS = tuple(Remaining("shop", f"web-{number}", PodWait.REQUESTED) for number in range(7))
ORDER: Final = (
    Deployment("a.1", "c1", "os", version="41.2", staged=True),
    Deployment("a.0", "c0", "os", digest="sha256:d0", booted=True),
    Deployment("a.9", "c9", "os"),
)
CHECK = BootloaderCheck("EFI", BootloaderState.OLDER, "shim-15.8-3", "shim-16.1-3", kernel=KernelTrust.REFUSED)
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
EXAMPLES: tuple[Event, ...] = (
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
    FenceChanged(ABOUT, None, "ended"),
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
    events.StagedInspected(CHANGES),
    BootloaderChecked(CHECK),
    DrainAdvanced(PODS),
    DrainAdvanced(()),
    events.LeaseChanged(Holder("jane", "maintenance", "disk swap", "2026-11-21T03:00:00.000Z")),
    events.LeaseChanged(None),
    MaintenanceChanged(None, message="the message"),
    DriftChanged("worker-1", (), "the message"),
    EtcdMemberChanged(None, "the message"),
    EtcdMemberChanged(MemberProgress("1", "join", "jane", "now", "the message"), "the message"),
    events.StatusProblem("settings", "TheReason", "the message"),
    events.ProblemSolved("settings", "the message"),
    events.UpdateFinished(HistoryEntry(**entry("u1", "worker-2")), 0),
    events.UpdateFinished(HistoryEntry(**entry("u1", "worker-2", "reverted", message="the message")), 1),
)
