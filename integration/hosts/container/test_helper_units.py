# SPDX-License-Identifier: Apache-2.0
"""The sandboxes of the helper units: a probe in place of their program, on a real host."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts import requirements
from integration.hosts.container.conftest import HostMaker, finish, required
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import Image

PROBE = "/usr/libexec/sandbox-probe"
SCRIPT = Path(__file__).with_name("sandbox_probe.sh")
REQUEST = "/run/nodeagent/extensions/request.json"
AUTH = "/run/nodeagent/extensions/auth.json"
KUBECONFIG = "/etc/nodeagent/kubeconfig"
SERVICE = "nodeagent-bootstrap.service"
PREPARE = "nodeagent-bootstrap-prepare.service"
INSTALL = "nodeagent-bootstrap-install.service"
BOOTSTRAP = "/var/lib/private/nodeagent-bootstrap"
INSTALLED = "/var/lib/nodeagent/client/client.pem"
TASK = "/run/nodeagent/bootstrap/task.json"
INSTALL = "nodeagent-bootstrap-install.service"
SECRETS = {
    "/etc/nodeagent/machineconfig.yaml": 0o600,
    "/etc/ssh/ssh_host_ed25519_key": 0o600,
    "/etc/kubernetes/kubeconfig": 0o600,
    "/etc/NetworkManager/system-connections/wifi.nmconnection": 0o600,
    "/var/lib/kubelet/pki/kubelet-client-current.pem": 0o600,
    "/var/lib/kubelet/config.json": 0o600,
    "/var/lib/etcd/member/snap/db": 0o600,
    "/home/core/.ssh/id_ed25519": 0o600,
    "/root/secret": 0o600,
    "/var/log/secret": 0o600,
}
HOSTS_OWN = ("/etc/shadow", "/etc/gshadow", agent.STORE, "/proc/1/environ", "/dev/kmsg")
MARK = "probe: "


@pytest.fixture(scope="module")
def up(request: pytest.FixtureRequest, agent_image: Image) -> Iterator[Host]:
    with Host(agent_image) as host:
        agent.settings(host, {"cluster": {"kubeconfig": KUBECONFIG}})
        for path, mode in SECRETS.items():
            host.write(path, "a secret of the tests\n", mode=mode)
        host.write(PROBE, SCRIPT.read_text(), mode=0o755)
        host.boot()
        agent.wait_daemon(host)
        host.write(KUBECONFIG, "a secret of the tests\n", mode=0o600)
        host.run(["mkdir", "-p", "-m", "0700", "/run/nodeagent/extensions"])
        for path in (REQUEST, AUTH):
            host.write(path, "{}", mode=0o600)
        yield host
        finish(host, request.node)


def probed(host: Host, unit: str, *paths: str) -> tuple[str, set[str]]:
    """Return the uid of the unit's program, and what it could do."""
    drop_in = f"[Service]\nRestart=no\nExecStart=\nExecStart=/bin/sh {PROBE} {' '.join(paths)}\n"
    host.write(f"/run/systemd/system/{unit}.d/probe.conf", drop_in)
    # A drop-in cannot take OnSuccess= away. That unit removes the directory of the task, at any time.
    following = [INSTALL] if unit != INSTALL else []
    for follower in following:
        host.run(["systemctl", "mask", "--runtime", follower])
    host.run(["systemctl", "daemon-reload"])
    try:
        host.run(["systemctl", "start", unit], timeout=90)
    finally:
        host.run(["rm", "-r", f"/run/systemd/system/{unit}.d"])
        for follower in following:
            host.run(["systemctl", "unmask", "--runtime", follower])
        host.run(["systemctl", "daemon-reload"])
    lines = [str(entry["MESSAGE"]) for entry in host.journal(unit)]
    probes = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
    # The last run: a module has more than one.
    last = probes[len(probes) - 1 - probes[::-1].index(next(p for p in reversed(probes) if p.startswith("begins"))) :]
    assert last[-1] == "ends", lines
    return last[0].removeprefix("begins as "), {line.removeprefix("can ") for line in last[1:-1]}


@pytest.mark.finding(
    "attack: the unit without rights",
    "The unit that pulls an extensions image has its own user and directory, and no bus.",
)
def test_the_unit_that_pulls_extensions_sees_nothing_of_the_host(up: Host) -> None:
    uid, could = probed(up, "nodeagent-extensions.service", *SECRETS, *HOSTS_OWN, KUBECONFIG, REQUEST, AUTH)
    assert could == set()
    assert 61184 <= int(uid) <= 65519, "a user that exists while the unit runs"


@pytest.mark.long
@pytest.mark.finding(
    "attack: the unit without rights",
    "The unit that requests a certificate has its own user and directory, and no bus.",
)
def test_the_unit_that_requests_a_certificate_sees_nothing_of_the_host(up: Host) -> None:
    uid, could = probed(up, "nodeagent-bootstrap.service", *SECRETS, *HOSTS_OWN, KUBECONFIG, TASK)
    assert could == set()
    assert 61184 <= int(uid) <= 65519, "a user that exists while the unit runs"


@pytest.mark.long
@pytest.mark.finding(
    "attack: the unit without rights", "The units of root beside it have no bus, no store and no network."
)
def test_the_units_that_hand_over_and_install_reach_no_service(up: Host) -> None:
    config = "/etc/nodeagent/machineconfig.yaml"
    up.run(["mkdir", "-p", "-m", "0700", str(Path(TASK).parent)])
    up.write(TASK, "{}", mode=0o600)
    uid, could = probed(up, "nodeagent-bootstrap-prepare.service", config, agent.STORE, KUBECONFIG, TASK)
    assert (uid, could) == ("0", {f"read {KUBECONFIG}", f"read {TASK}", f"write {TASK}"})
    uid, could = probed(up, INSTALL, config, agent.STORE, KUBECONFIG, TASK)
    of_the_admin = {"write in /etc/nodeagent", "write in /etc/nodeagent/config.d"}
    # It removes the directory of the task, which has nothing that this unit cannot read elsewhere.
    files = {f"{access} {path}" for access in ("read", "write") for path in (KUBECONFIG, TASK)}
    assert (uid, could) == ("0", files | of_the_admin)


@pytest.mark.finding(
    "attack: the unit without rights", "Code in the sandbox of a helper unit cannot start a unit as root."
)
@pytest.mark.parametrize(
    "unit",
    ["nodeagent-extensions.service", pytest.param("nodeagent-bootstrap.service", marks=pytest.mark.long)],
)
def test_a_helper_unit_cannot_start_another(up: Host, unit: str) -> None:
    """The input of the finding: the program of the unit is systemd-run itself."""
    drop_in = (
        "[Unit]\nOnSuccess=\n[Service]\nRestart=no\nExecStart=\n"
        'ExecStart=/usr/bin/systemd-run --wait --quiet sh -c "id > /root/owned"\n'
    )
    up.write(f"/run/systemd/system/{unit}.d/probe.conf", drop_in)
    up.run(["systemctl", "daemon-reload"])
    try:
        assert up.run(["systemctl", "start", unit], check=False, timeout=60).returncode != 0
    finally:
        up.run(["rm", "-r", f"/run/systemd/system/{unit}.d"])
        up.run(["systemctl", "daemon-reload"])
        up.run(["systemctl", "reset-failed", unit], check=False)
    assert not up.exists("/root/owned")


@pytest.mark.long
def test_the_unit_that_requests_a_certificate_gets_to_the_api_server(make_node: HostMaker) -> None:
    """The server ends each connection. The whole way is tested with a cluster."""
    required(lambda: requirements.install(print, "openssl"))
    openssl = str(shutil.which("openssl"))
    source = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "a-secret-of-the-tests"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    host = make_node(
        settings={"node_name": "n1", "cluster": {"kubeconfig": KUBECONFIG}},
        files={"/etc/nodeagent/bootstrap-kubeconfig": json.dumps(source)},
        # The image of the hosts has the library without the program.
        read_only={"/usr/bin/openssl": Path(openssl)},
    )
    listen = ["systemd-run", "--unit=api", "--socket-property=ListenStream=127.0.0.1:9"]
    host.run([*listen, "/bin/touch", "/run/connected"])
    host.run(["systemctl", "start", "--no-block", SERVICE])
    host.wait_for(lambda: host.exists("/run/connected"), "a connection", 180)
    mode, uid = host.run(["stat", "--format=%a %u", f"{BOOTSTRAP}/request.pem"]).stdout.split()
    assert mode == "600"
    assert 61184 <= int(uid) <= 65519
    host.run(["systemctl", "stop", SERVICE])
    assert not host.exists(KUBECONFIG)
    assert host.run(["stat", "--format=%a %U", TASK]).stdout.split() == ["600", "root"]
    # After a success, another unit installs what is there.
    drop_in = "[Service]\nExecStart=\nExecStart=/bin/true\n"
    host.write(f"/run/systemd/system/{SERVICE}.d/probe.conf", drop_in)
    host.run(["systemctl", "daemon-reload"])
    host.write(f"{BOOTSTRAP}/client.pem", certificate_of("n1"), mode=0o600)
    host.run(["systemctl", "start", SERVICE])
    host.wait_for(lambda: host.exists(KUBECONFIG), "the kubeconfig", 180)
    for path in (KUBECONFIG, INSTALLED):
        assert host.run(["stat", "--format=%a %U", path]).stdout.split() == ["600", "root"]
    host.wait_for(lambda: not host.exists(TASK), "the end of the task", 60)
    # Code in the unit leaves a link to a secret of the host instead: it is refused, and is in no message.
    host.run(["ln", "-sf", "/etc/shadow", f"{BOOTSTRAP}/client.pem"])
    before = host.read_text(INSTALLED)
    host.run(["systemctl", "start", INSTALL], check=False)
    printed = host.run(["journalctl", "--unit", INSTALL, "--output", "cat"]).stdout
    assert "CertificateFailed" in printed
    assert "root:" not in printed
    assert host.read_text(INSTALLED) == before


@pytest.mark.long
def test_a_request_that_cannot_be_prepared_is_the_result_of_the_unit(make_node: HostMaker) -> None:
    """Nothing is set, which systemd does not repeat: the timer is soon enough."""
    host = make_node()
    assert host.run(["systemctl", "start", SERVICE], check=False, timeout=90).returncode != 0
    found = host.unit(SERVICE, "ActiveState", "ExecMainStatus")
    assert (found["ActiveState"], found["ExecMainStatus"]) == ("failed", "2")
    assert "cluster.kubeconfig is not set" in host.run(["journalctl", "--unit", PREPARE, "--output", "cat"]).stdout


def certificate_of(node: str) -> str:
    """A key and a certificate of its own."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "-"]
    command = ["openssl", "req", "-x509", *key, "-subj", f"/O=nodeagent/CN=nodeagent:{node}", "-days", "1"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def test_the_directory_for_packages_is_that_of_the_unit_only(up: Host) -> None:
    """It is left by the probes above; only root comes through the directory that systemd keeps for such users."""
    up.write(
        "/run/systemd/system/nodeagent-extensions.service.d/probe.conf",
        "[Service]\nExecStart=\nExecStart=/bin/sh -c 'echo packages >$STATE_DIRECTORY/left'\n",
    )
    up.run(["systemctl", "daemon-reload"])
    up.run(["systemctl", "start", "nodeagent-extensions.service"])
    assert up.read_text("/var/lib/private/nodeagent-extensions/left") == "packages\n"
    assert up.run(["cat", "/var/lib/nodeagent-extensions/left"], user="core", check=False).returncode != 0
