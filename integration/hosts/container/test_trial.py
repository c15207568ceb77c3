# SPDX-License-Identifier: Apache-2.0
"""`nodeagent apply --try` on a real host: sshd moves to another port, and back, unless a new login keeps that."""

from __future__ import annotations

import subprocess
import time

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import apply_command, machine_config, outcomes, wait_done, wait_outcome

pytestmark = pytest.mark.slow

PORT = "/etc/ssh/sshd_config.d/60-port.conf"
POLICY = agent.policy(files={PORT: ["Restart ssh.service"]})
NOT_KEPT = "28c9ccbd59df45bfbfda53c519e57500"
# An operator whose session is older than the trial, and who keeps it from there.
OLD = "until [ -e /run/go ]; do sleep 0.2; done; nodeagent keep >/run/said 2>&1; echo $? >/run/status"
SESSION = (
    "--property=PAMName=login",
    "--property=Environment=XDG_SESSION_TYPE=tty XDG_SESSION_CLASS=user",
    "--quiet",
    "--collect",
)


@pytest.fixture
def node(make_node: HostMaker) -> Host:
    host = make_node(files={agent.POLICY: POLICY})
    host.run(["rm", "/etc/systemd/system/ssh.service"])
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "enable", "--now", "ssh.service"])
    agent.apply(host, machine_config("first", files={PORT: "Port 22\n"}))
    wait_done(host, "first")
    return host


def answers(host: Host, port: int) -> bool:
    script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && head -c 4 <&3"
    return host.run(["timeout", "5", "bash", "-c", script], check=False).stdout == "SSH-"


def try_port(host: Host, time: str) -> None:
    apply_command(host, machine_config("moved", files={PORT: "Port 2222\n"}), "--try", time)
    wait_trial(host)
    assert (answers(host, 22), answers(host, 2222)) == (False, True)


def wait_trial(host: Host) -> None:
    agent.wait_phase(host, "Verifying", reason="OnTrial")


def log_in_and(host: Host, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a login session of root that begins now."""
    return host.run(["systemd-run", "--wait", "--pipe", *SESSION, *command], check=False)


def is_back(host: Host) -> bool:
    status = agent.status(host)
    return (status["phase"], status["reason"], status["current"], status["trial"], status["lease"]) == (
        "Degraded",
        "Reverted",
        "first",
        None,
        None,
    ) and (answers(host, 22), answers(host, 2222)) == (True, False)


@pytest.mark.long
def test_a_change_that_no_login_keeps_is_taken_back(node: Host) -> None:
    try_port(node, "60s")
    refused = apply_command(node, machine_config("other", files={PORT: "Port 23\n"}), check=False)
    assert (refused.returncode, "OnTrial" in refused.stderr) == (4, True)
    assert "trial until" in node.read_text("/run/motd.d/50-nodeagent")
    ended = wait_outcome(node, "moved")
    assert (ended["outcome"], ended["reason"]) == ("reverted", "NotKept")
    assert is_back(node)
    assert node.reboots == 0
    assert [entry for entry in node.journal(agent.UNIT) if entry.get("MESSAGE_ID") == NOT_KEPT]
    node.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(node)
    time.sleep(2)
    assert is_back(node), "it is applied on request only"


def test_only_a_new_login_keeps_it(node: Host) -> None:
    node.run(["systemd-run", *SESSION, "sh", "-c", OLD])
    node.wait_for(lambda: "root" in node.run(["loginctl", "list-sessions", "--no-legend"]).stdout, "the first login")
    try_port(node, "10m")
    node.write("/run/go", "")
    node.wait_for(lambda: node.exists("/run/status") and node.read_text("/run/status"), "the answer to the old login")
    assert (node.read_text("/run/status"), "OldLogin" in node.read_text("/run/said")) == ("4\n", True)
    service = node.run(["systemd-run", "--wait", "--pipe", "--quiet", "nodeagent", "keep"], check=False)
    assert (service.returncode, "NoLogin" in service.stderr) == (4, True)
    kept = log_in_and(node, "nodeagent", "keep")
    assert (kept.returncode, kept.stdout) == (0, "moved is kept\n")
    wait_done(node, "moved")
    assert (answers(node, 2222), outcomes(node)[-1]) == (True, ("moved", "done"))
    over = log_in_and(node, "nodeagent", "keep")
    assert (over.returncode, "NoTrial" in over.stderr) == (4, True)


@pytest.mark.long
def test_a_login_from_the_host_itself_proves_nothing(node: Host) -> None:
    node.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/.ssh/id"])
    node.run(["cp", "/root/.ssh/id.pub", "/root/.ssh/authorized_keys"])
    try_port(node, "10m")
    options = ("-i", "/root/.ssh/id", "-p", "2222", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes")
    loop = node.run(["ssh", *options, "root@127.0.0.1", "nodeagent", "keep"], check=False)
    assert (loop.returncode, "OldLogin" in loop.stderr, "from this host" in loop.stderr) == (4, True, True)
    back = node.run(["nodeagent", "keep", "--revert"])
    assert "moved is taken back; the host goes back to first" in back.stdout
    wait_outcome(node, "moved")
    assert is_back(node)


@pytest.mark.long
def test_a_killed_agent_goes_on_with_the_trial(node: Host) -> None:
    try_port(node, "60s")
    began = time.monotonic()
    for _ in range(2):
        time.sleep(5)
        node.kill(agent.UNIT)
        agent.wait_daemon(node)
        wait_trial(node)
    assert wait_outcome(node, "moved")["reason"] == "NotKept"
    assert time.monotonic() - began < 110
    assert is_back(node)


@pytest.mark.long
def test_a_reboot_begins_the_time_again_and_a_power_cut_does_too(node: Host) -> None:
    try_port(node, "60s")
    until = agent.status(node)["trial"]["until"]
    with node.rebooting():
        node.run(["systemctl", "reboot"])
    agent.wait_daemon(node)
    wait_trial(node)
    again = agent.status(node)["trial"]["until"]
    assert again > until
    node.power_cut()
    agent.wait_daemon(node)
    wait_trial(node)
    assert agent.status(node)["trial"]["until"] > again
    assert answers(node, 2222)
    assert wait_outcome(node, "moved")["reason"] == "NotKept"
    node.wait_for(lambda: is_back(node), "everything is as it was")


@pytest.mark.long
def test_a_login_after_a_reboot_keeps_it(node: Host) -> None:
    try_port(node, "60s")
    with node.rebooting():
        node.run(["systemctl", "reboot"])
    agent.wait_daemon(node)
    wait_trial(node)
    assert log_in_and(node, "nodeagent", "keep").returncode == 0
    wait_done(node, "moved")
    assert answers(node, 2222)
