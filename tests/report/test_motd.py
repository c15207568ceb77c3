# SPDX-License-Identifier: Apache-2.0
"""The message of the day: what an admin has to know at log-in, and nothing while the host is well."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.core.display import with_times
from nodeagent.core.plan.deployment import Deployment
from nodeagent.reasons import Reason, hint
from nodeagent.report.motd import motd
from nodeagent.report.properties import properties, properties_of
from nodeagent.report.status import Status
from nodeagent.update.states import Phase
from tests.support.golden import Golden

SINCE = "2026-11-21T03:00:00.000Z"
IDLE = Status(current="worker-1", desired="worker-1", since=SINCE)
STAGED = Deployment("a.1", "c1", "os", staged=True)


def busy(phase: Phase, **more: object) -> Status:
    return replace(IDLE, phase=phase, desired="worker-2", target="worker-2", **more)  # type: ignore[arg-type]


def test_nothing_while_the_host_is_well() -> None:
    assert motd(IDLE) == ""
    assert motd(replace(IDLE, deployments=(replace(STAGED, locked=True),))) == ""


def test_messages(golden: Golden) -> None:
    waits = "the reboot waits until 2026-11-21T04:00:00Z for backup: running; then it is overridden"
    cases = {
        "acting": busy(Phase.ACTING),
        "waiting for its window": busy(Phase.LEASING, reason="WindowClosed", message="the next window opens on Sat"),
        "rebooting": busy(Phase.REBOOTING, reason="RebootBlocked", message=waits),
        "degraded": busy(Phase.DEGRADED, reason="InvalidInput", message="spec.x: unknown key"),
        "reverted": busy(
            Phase.DEGRADED,
            reason="Reverted",
            message="the host runs worker-1 again; worker-2 was taken back because of: x failed",
        ),
        "a held reboot": busy(
            Phase.LEASING,
            reason="RebootRequired",
            message="this host must be rebooted for worker-2; root holds the reboot back",
        ),
        "waiting for an admin": busy(Phase.LEASING, reason="RebootRequired", message="the reboot waits for an admin"),
        "staged by another": replace(IDLE, deployments=(STAGED,)),
    }
    for name, status in cases.items():
        text = motd(status)
        assert text.startswith("nodeagent: ")
        assert text.endswith("\n")
        golden("motd", name, text)


def test_a_failure_has_its_way_out() -> None:
    for reason in (Reason.REVERTED, Reason.VERIFY_LATE):
        assert hint(reason) in motd(busy(Phase.DEGRADED, reason=reason, message="x"))


def test_each_declared_property_has_a_value() -> None:
    found = properties_of(busy(Phase.REBOOTING))
    assert found.keys() == properties().keys()
    assert (found["Phase"], found["Target"], found["RebootRequired"]) == ("Rebooting", "worker-2", True)


def test_times_in_a_text() -> None:
    text = "waits until 2026-11-21T04:00:00Z, or 2026-11-21T04:00:00.123Z; not 2026-11-21"
    assert with_times(text, lambda _: "NOON") == "waits until NOON, or NOON; not 2026-11-21"
