# SPDX-License-Identifier: Apache-2.0
"""The content of the package, and the narrow access of the agent to the host. One host for all of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import finish
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import Image
from integration.hosts.nodeagent_client import machine_config

EXPOSURE = 3.4  # of systemd-analyze security, from 0 to 10; each version of systemd has other weights
# CAP_CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SYS_NICE, AUDIT_WRITE: linux/capability.h
CAPABILITIES = {0, 1, 3, 4, 23, 29}
WATCHED = 3.0  # seconds of doing nothing
IDLE = 0.02  # of one processor
RSS_MB = 60  # measured: 37


@pytest.fixture(scope="module")
def up(request: pytest.FixtureRequest, agent_image: Image) -> Iterator[Host]:
    """The host of the module, which its tests do not change."""
    with Host(agent_image) as host:
        agent.settings(host)
        host.boot()
        agent.wait_daemon(host)
        yield host
        finish(host, request.node)


def test_the_unit_is_a_good_service(up: Host) -> None:
    unit = up.unit(
        agent.UNIT, "Type", "WatchdogUSec", "StatusText", "ActiveState", "SubState", "NRestarts", "UnitFileState"
    )
    assert unit == {
        "Type": "notify",
        "WatchdogUSec": "1min",
        "StatusText": unit["StatusText"],
        "ActiveState": "active",
        "SubState": "running",
        "NRestarts": "0",
        "UnitFileState": "enabled",
    }
    assert unit["StatusText"].startswith("Idle")
    assert 'Status: "Idle' in up.run(["systemctl", "status", agent.UNIT]).stdout
    assert up.run(["systemctl", "is-system-running"]).stdout.strip() == "running"
    warnings = [entry["MESSAGE"] for entry in up.journal(agent.UNIT) if int(entry["PRIORITY"]) < 6]
    assert warnings == []


def test_everyone_may_ask_and_only_root_may_change(up: Host) -> None:
    status = up.run(["nodeagent", "status", "--json"], user="core")
    assert json.loads(status.stdout)["daemon"] == "running"
    assert up.run(["nodeagent", "status"], user="core").stdout != ""
    assert json.loads(up.run(["nodeagent", "history", "--json"], user="core").stdout)["updates"] == []
    for argv, stdin in (
        (["apply", "-"], machine_config("theirs")),
        (["maintenance", "start", "--reason", "because"], ""),
        (["maintenance", "stop"], ""),
    ):
        refused = up.run(["nodeagent", *argv], user="core", stdin=stdin, check=False)
        assert refused.returncode == 4, (argv, refused.stderr)
        assert re.match(r"nodeagent: (AccessDenied|NotAuthorized): ", refused.stderr), refused.stderr
        assert "hint: " in refused.stderr
    assert not up.exists(agent.DESIRED)
    assert agent.status(up)["lease"] is None


def test_what_it_keeps_is_for_root(up: Host) -> None:
    listed = up.run(["sh", "-c", "stat --format='%A %U %n' /var/lib/nodeagent /var/lib/nodeagent/* /run/nodeagent"])
    modes = {line.split()[2]: line.split()[:2] for line in listed.stdout.splitlines()}
    assert modes["/var/lib/nodeagent"] == ["drwx------", "root"]
    assert modes["/run/nodeagent"] == ["drwxr-xr-x", "root"]
    inside = [path for path in modes if path.startswith("/var/lib/nodeagent/")]
    assert agent.STORE in inside
    assert {tuple(modes[path]) for path in inside} == {("-rw-------", "root")}
    assert up.run(["cat", agent.STORE], user="core", check=False).returncode != 0


def test_it_runs_by_its_own_interpreter_only(up: Host) -> None:
    pid = up.unit(agent.UNIT, "MainPID")["MainPID"]
    assert up.run(["readlink", f"/proc/{pid}/exe"]).stdout.strip().startswith("/usr/lib/nodeagent/")
    mapped = {line.split()[-1] for line in up.read_text(f"/proc/{pid}/maps").splitlines() if "/" in line}
    elsewhere = {path for path in mapped if path.startswith("/") and "/usr/lib/nodeagent/" not in path}
    glibc = re.compile(
        r".*/(ld-linux|lib(c|m|dl|rt|pthread|util|gcc_s|nss_\w+|resolv))[-.].*|/memfd:.*|.*/(locale|gconv)/.*"
    )
    assert [path for path in elsewhere if not glibc.match(path)] == []
    environment = up.read_text(f"/proc/{pid}/environ")
    assert "PYTHON" not in environment.replace("PYTHONSAFEPATH", "")


def test_it_may_little(up: Host) -> None:
    table = up.run(["systemd-analyze", "security", "--no-pager", agent.UNIT]).stdout
    found = re.search(r"Overall exposure level for nodeagent.service: ([0-9.]+)", table)
    assert found is not None
    assert float(found[1]) <= EXPOSURE, table
    main = up.unit(agent.UNIT, "MainPID")["MainPID"]
    about = dict(line.split(":", 1) for line in up.read_text(f"/proc/{main}/status").splitlines())
    assert about["NoNewPrivs"].strip() == "1"
    assert about["Seccomp"].strip() == "2"


def test_the_sandbox_of_the_daemon(up: Host) -> None:
    main = up.unit(agent.UNIT, "MainPID")["MainPID"]
    about = dict(line.split(":", 1) for line in up.read_text(f"/proc/{main}/status").splitlines())
    bounding = int(about["CapBnd"], 16)
    assert {number for number in range(64) if bounding >> number & 1} == CAPABILITIES
    # Fields of mountinfo: the fifth is the mount point, the sixth has the options of the mount.
    mounts = [line.split() for line in up.read_text(f"/proc/{main}/mountinfo").splitlines()]
    options = {fields[4]: fields[5].split(",")[0] for fields in mounts}
    assert (options["/usr"], options["/usr/local"], options.get("/boot", "ro")) == ("ro", "rw", "ro")
    assert [line for line in up.read_text(f"/proc/{main}/maps").splitlines() if " rwx" in line] == []
    limits = up.unit(agent.UNIT, "MemoryMax", "TasksMax")
    assert limits == {"MemoryMax": str(1 << 30), "TasksMax": "128"}


def test_the_daemon_opens_no_port(up: Host) -> None:
    main = up.unit(agent.UNIT, "MainPID")["MainPID"]
    links = up.run(["sh", "-c", f"for fd in /proc/{main}/fd/*; do readlink $fd; done"], check=False).stdout
    mine = set(re.findall(r"socket:\[(\d+)\]", links))
    assert mine, "the bus at least"
    tables = up.run(["sh", "-c", "cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/udp6"]).stdout
    rows = [line.split() for line in tables.splitlines() if ":" in line.split()[0] and line.split()[0][0].isdigit()]
    assert [row for row in rows if row[9] in mine] == []
    unix = [line.split() for line in up.read_text("/proc/net/unix").splitlines()[1:]]
    # The flag of a listening socket.
    assert [row for row in unix if row[6] in mine and int(row[3], 16) & 0x10000] == []


def test_it_costs_nothing_while_nothing_happens(up: Host) -> None:
    time.sleep(1)  # start-up is over

    main = up.unit(agent.UNIT, "MainPID")["MainPID"]

    def ticks() -> int:
        fields = up.read_text(f"/proc/{main}/stat").rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(WATCHED)
    used = (ticks() - before) / 100 / WATCHED
    about = dict(line.split(":", 1) for line in up.read_text(f"/proc/{main}/status").splitlines())
    rss = int(about["VmRSS"].split()[0]) / 1024
    assert used <= IDLE
    assert rss <= RSS_MB


def test_the_manual_and_the_completion_are_there(up: Host) -> None:
    assert up.run(["sh", "-c", "ls /usr/share/man/man8/"]).stdout.split() == ["nodeagent.8"]
    completion = "/usr/share/bash-completion/completions/nodeagent"
    script = f"source {completion}; complete -p nodeagent"
    assert "nodeagent" in up.run(["bash", "-c", script]).stdout
    version = up.run(["nodeagent", "version"]).stdout.split()
    assert version[0] == "nodeagent"
    assert up.run(["nodeagent", "settings", "check"]).returncode == 0
    assert "50-ring.yaml" in up.run(["nodeagent", "settings", "show"]).stdout


def test_it_is_an_interface_that_others_can_read(up: Host) -> None:
    members = up.run(["busctl", "introspect", agent.NAME, agent.PATH]).stdout
    maintenance = ("StartMaintenance", "StopMaintenance")
    methods = ("Apply", "Rollback", "Verify", "History", *maintenance, "Reload")
    for name in (*methods, "Status", "Version"):
        assert re.search(rf"^\.{name}\s", members, re.MULTILINE), (name, members)
    assert agent.status(up)["schema"] == "nodeagent/status/v1"


def test_bad_settings_are_refused_by_a_reload_and_the_old_ones_stay(up: Host) -> None:
    up.write("/run/nodeagent/config.d/90-bad.yaml", "actions:\n  timeuot: 3\n")
    try:
        refused = up.run(["nodeagent", "settings", "check"], check=False)
        assert refused.returncode == 2
        assert "90-bad.yaml:2" in refused.stderr + refused.stdout
        assert up.run(["systemctl", "reload", agent.UNIT], check=False).returncode != 0
        assert up.is_active(agent.UNIT)
    finally:
        up.run(["rm", "/run/nodeagent/config.d/90-bad.yaml"])
    up.run(["systemctl", "reload", agent.UNIT])
    assert agent.status(up)["phase"] == "Idle"
