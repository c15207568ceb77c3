# SPDX-License-Identifier: Apache-2.0
"""What bootc, its timer and others do on a host that nodeagent updates as well. bootc is the stand-in or a real one."""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import Publish
from integration.hosts.ostree.ostree_host import STAGED, OstreeHost
from integration.hosts.ostree.test_bootc_ground import LOCK
from integration.hosts.ostree.test_harness import reboot
from integration.trees.image_registry import Published
from integration.trees.tree import CONTENT, DEFAULTS, A, B
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import UpdateWaiting

TIMER = "bootc-fetch-apply-updates.timer"
UNITS = {
    TIMER.replace(".timer", ".service"): "[Service]\nType=oneshot\nExecStart=/usr/bin/true\n",
    TIMER: "[Timer]\nOnBootSec=1h\n",
}


@pytest.fixture
def publish_node(publish_bootc_node: Publish) -> Publish:
    return publish_bootc_node


@pytest.fixture
def node(bootc_node_at_a: OstreeHost) -> OstreeHost:
    return bootc_node_at_a


def problem(host: OstreeHost, reason: str) -> str:
    problems = agent.status(host)["problems"]
    return next((str(each["message"]) for each in problems if each["reason"] == reason), "")


def wait_problem(host: OstreeHost, reason: str) -> str:
    return str(host.wait_for(lambda: problem(host, reason), f"the problem {reason}", 30))


def wait_no_problem(host: OstreeHost, reason: str) -> None:
    host.wait_for(lambda: not problem(host, reason), f"the end of {reason}", 30)


def with_reboot(name: str, image: Published) -> str:
    """A config whose second file needs a reboot, with the OS as it is."""
    files = {updates.MINE: f"mine of {name}\n", "/etc/other.conf": "needs a reboot\n"}
    unit = {updates.MINE_UNIT: agent.UnitSpec(updates.UNIT, enabled=True)}
    return agent.machine_config(name, files=files, units=unit, osImageURL=image.by_digest)


def test_an_os_that_bootc_stages(node: OstreeHost, publish_node: Publish) -> None:
    """Named, waited for, booted by a reboot of bootc's own, and named again as the cause of the drift."""
    a, b = publish_node(A), publish_node(B)
    node.run(["bootc", "switch", b.by_digest])
    checksum = node.deployments()[0].checksum
    assert checksum in wait_problem(node, "StagedByOther")
    assert b.digest in wait_problem(node, "RebootAnnounced")
    config = with_reboot("k", a)
    node.write("/root/k.yaml", config)
    assert checksum in node.run(["nodeagent", "plan", "/root/k.yaml"]).stdout
    agent.apply(node, config)
    updates.wait_logged(node, UpdateWaiting, Reason.STAGED_BY_OTHER)
    assert not node.exists("/etc/other.conf")
    node.run(["nodeagent", "cancel"])
    agent.wait_phase(node, "Idle")
    # Another OS is not staged over it.
    agent.apply(node, updates.config("l", a, kernelArguments=["nosmt"]))
    assert agent.wait_phase(node, "Degraded")["reason"] == "StagedByOther"
    node.run(["nodeagent", "cancel"])
    agent.apply(node, updates.config("a", a))
    agent.wait_phase(node, "Idle")

    reboot(node)
    assert node.read_text(CONTENT) == B.files[CONTENT]
    agent.wait_daemon(node)
    drift = node.wait_for(lambda: agent.status(node)["drift"], "the drift", 60)
    assert [each["entry"] for each in drift] == ["osImageURL:osImageURL"]
    checksum = node.deployments()[0].checksum
    assert checksum[:12] in drift[0]["by"], "the OS that was booted is the cause"
    wait_no_problem(node, "StagedByOther")
    wait_no_problem(node, "RebootAnnounced")


@pytest.mark.long
def test_a_locked_deployment_of_bootc(node: OstreeHost, publish_node: Publish) -> None:
    """As `bootc upgrade --download-only` leaves it: no reboot boots it, and nothing replaces it."""
    node.write(LOCK, "")
    node.run(["bootc", "switch", publish_node(B).by_digest])
    (staged, _) = node.deployments()
    # This lock is one that `ostree admin status` does not show.
    assert (staged.staged, node.exists(LOCK)) == (True, True)
    wait_problem(node, "RebootAnnounced")
    assert not problem(node, "StagedByOther")
    agent.apply(node, updates.config("l", publish_node(A), kernelArguments=["nosmt"]))
    assert agent.wait_phase(node, "Degraded")["reason"] == "StagedByOther"
    assert node.deployments()[0] == staged
    node.run(["ostree", "admin", "undeploy", "0"])
    updates.apply_again(node, updates.config("l", publish_node(A), kernelArguments=["nosmt"]))
    updates.wait_updated(node, "l", A)


def test_what_bootc_does_to_a_deployment_of_the_agent(node: OstreeHost, publish_node: Publish) -> None:
    agent.apply_command(node, updates.config("b", publish_node(B)), "--no-reboot")
    node.wait_for(lambda: agent.status(node)["reason"] == "RebootRequired", "it is staged and waits", updates.WAIT)
    ours = node.deployments()[0]
    assert (ours.staged, ours.locked) == (True, True)
    # Its timer unlocks with the same command. It is locked again in a way that bootc does not undo.
    node.run(["bootc", "upgrade"])
    node.wait_for(lambda: node.exists(LOCK), "it is locked again", 30)
    node.run(["bootc", "upgrade"])
    assert node.exists(LOCK)
    # Another program takes that lock away, too.
    node.run(["rm", LOCK])
    wait_problem(node, "StagedUnlocked")
    # It is made again, without a lock.
    node.run(["bootc", "loader-entries", "set-options-for-source", "--source=tuned", "--options=tuned=1"])
    assert wait_problem(node, "StagedLost")
    assert node.deployments()[0].serial == ours.serial + 1


def test_a_rollback_that_bootc_queues(node: OstreeHost, publish_node: Publish) -> None:
    b = publish_node(B)
    agent.apply(node, updates.config("b", b))
    updates.wait_updated(node, "b", B)
    previous = node.deployments()[1].checksum
    node.run(["bootc", "rollback"])
    assert previous in wait_problem(node, "StagedByOther")
    agent.apply(node, with_reboot("k", b))
    updates.wait_logged(node, UpdateWaiting, Reason.STAGED_BY_OTHER)
    # It toggles.
    node.run(["bootc", "rollback"])
    wait_no_problem(node, "StagedByOther")
    agent.wait_done(node, "k", updates.WAIT)
    assert node.read_text(CONTENT) == B.files[CONTENT]
    assert node.reboots == 2


def test_the_timer_and_a_writable_usr(node: OstreeHost, publish_node: Publish) -> None:
    for name, text in UNITS.items():
        node.write(f"/run/systemd/system/{name}", text)
    node.run(["systemctl", "start", TIMER])
    done = agent.apply_command(node, updates.config("b", publish_node(B)), check=False)
    assert (done.returncode, "OtherDriver" in done.stderr, TIMER in done.stderr) == (4, True, True)
    node.run(["systemctl", "stop", TIMER])
    # What bootc usr-overlay calls.
    node.run(["ostree", "admin", "unlock"])
    node.write("/root/b.yaml", updates.config("b", publish_node(B)))
    assert "/usr was made writable" in node.run(["nodeagent", "plan", "/root/b.yaml"]).stdout


def test_a_default_that_another_os_brought(node: OstreeHost, publish_node: Publish) -> None:
    """A managed file that was equal to the old default is merged by an update of bootc, too."""
    a = publish_node(A)
    files = {updates.MINE: "mine of m\n", DEFAULTS: A.files[DEFAULTS]}
    unit = {updates.MINE_UNIT: agent.UnitSpec(updates.UNIT, enabled=True)}
    agent.apply(node, agent.machine_config("m", files=files, units=unit, osImageURL=a.by_digest))
    agent.wait_done(node, "m", updates.WAIT)
    node.run(["bootc", "switch", publish_node(B).by_digest])
    reboot(node)
    agent.wait_daemon(node)

    def drifted() -> str:
        return next((each["by"] for each in agent.status(node)["drift"] if each["entry"] == f"file:{DEFAULTS}"), "")

    by = node.wait_for(drifted, "the drift of the file", 60)
    assert node.deployments()[0].checksum[:12] in str(by), "the OS that was booted is the cause"
    assert not node.exists(STAGED)
