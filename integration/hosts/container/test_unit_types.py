# SPDX-License-Identifier: Apache-2.0
"""Steps by the type of a unit, and the judge of units, on a real systemd."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import UnitSpec, machine_config

UNITS = "/etc/systemd/system"
SLEEP = "[Service]\nExecStart=sleep infinity\n"
LONG = 180.0  # seconds for up to three boots and their verification on a busy machine
WANTED = "[Install]\nWantedBy=multi-user.target\n"


def plan(host: Host, config: str) -> list[str]:
    """The actions of a plan on the host, and its notes."""
    host.write("/root/plan.json", config)
    found = json.loads(host.run(["nodeagent", "plan", "--json", "/root/plan.json"]).stdout)
    return [*(f"{a['type']} {a.get('unit', '')}".strip() for a in found["actions"]), *found["notes"]]


def newest(host: Host) -> tuple[str, int, str]:
    entry = agent.history(host)[0]
    return entry["outcome"], entry["reboots"], entry.get("message", "")


@pytest.mark.finding("units: slices and scopes", "A slice that leaves the config takes no service down.")
@pytest.mark.finding("units: units that leave", "A mount that leaves is unmounted.")
@pytest.mark.finding("units: what stops along", "A part of a target that leaves runs on.")
@pytest.mark.long
def test_units_that_leave(make_node: HostMaker) -> None:
    units = {
        "pod.slice": UnitSpec("[Slice]\nMemoryMax=400M\n"),
        "grp.target": UnitSpec("[Unit]\nWants=part.service\n"),
        "var-m1.mount": UnitSpec("[Mount]\nWhat=tmpfs\nWhere=/var/m1\nType=tmpfs\n"),
        "gone.socket": UnitSpec("[Socket]\nListenStream=/run/gone.sock\n"),
        "gone.service": UnitSpec(SLEEP),
        "gone.timer": UnitSpec("[Timer]\nOnActiveSec=1h\nUnit=gone.service\n"),
    }
    policy = agent.policy(units={name: ["DaemonReload", f"Restart {name}"] for name in units})
    files = {
        agent.POLICY: policy,
        f"{UNITS}/inner.service": f"[Service]\nSlice=pod.slice\nExecStart=sleep infinity\n{WANTED}",
        f"{UNITS}/part.service": f"[Unit]\nPartOf=grp.target\n{SLEEP}{WANTED}",
    }
    host = make_node(files=files)
    agent.apply(host, machine_config("with", units=units))
    agent.wait_done(host, "with")
    host.run(["systemctl", "enable", "--now", "inner.service", "part.service", "gone.service"])
    assert host.unit("pod.slice", "MemoryMax") == {"MemoryMax": str(400 << 20)}
    smaller = {**units, "pod.slice": UnitSpec("[Slice]\nMemoryMax=300M\n")}
    before = host.unit("inner.service", "InvocationID")
    agent.apply(host, machine_config("smaller", units=smaller))
    agent.wait_done(host, "smaller")
    # systemd realizes all cgroups again after a daemon-reload, so that is enough for the settings of a slice.
    assert host.unit("pod.slice", "MemoryMax") == {"MemoryMax": str(300 << 20)}
    assert host.unit("inner.service", "InvocationID") == before
    stops = ["Stop gone.socket", "Stop gone.timer", "Stop gone.service", "Stop var-m1.mount"]
    assert plan(host, machine_config("without"))[:5] == ["DaemonReload", *stops]
    agent.apply(host, machine_config("without"))
    agent.wait_done(host, "without")
    assert newest(host)[:2] == ("done", 0)
    for unit in ("inner.service", "part.service", "pod.slice"):
        assert host.is_active(unit), unit
    for unit in ("gone.socket", "gone.service", "gone.timer", "var-m1.mount"):
        assert not host.is_active(unit), unit
    assert host.run(["findmnt", "/var/m1"], check=False).returncode != 0


@pytest.mark.finding(
    "units: what systemd can do with a unit",
    "A unit with RefuseManualStop= is stopped when its file leaves, without a fallback.",
)
def test_units_that_refuse_to_stop_and_leave(make_node: HostMaker) -> None:
    text = f"[Unit]\nRefuseManualStop=yes\n{SLEEP}"
    # Entries without a DaemonReload, after which systemd still has the line of the file that is gone.
    policy = agent.policy(units={name: [f"Reload {name}"] for name in ("gone.service", "masked.service")})
    host = make_node(files={agent.POLICY: policy, f"{UNITS}/masked.service": text})
    host.write(f"{UNITS}/gone.service", text)
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "start", "gone.service", "masked.service"])
    units = {"gone.service": UnitSpec(text), "masked.service": UnitSpec(text)}
    agent.apply(host, machine_config("with", units=units))
    agent.wait_done(host, "with")
    gone = machine_config("without", units={"masked.service": UnitSpec(mask=True)})
    assert plan(host, gone) == ["DaemonReload", "Stop gone.service", "Stop masked.service"]
    agent.apply(host, gone)
    agent.wait_done(host, "without")
    assert newest(host)[:2] == ("done", 0)
    assert not host.is_active("gone.service")
    assert not host.is_active("masked.service")


@pytest.mark.finding("units: sockets and their services", "A socket and its service change without a fallback.")
def test_a_socket_and_its_service(make_node: HostMaker) -> None:
    names = ("echo.socket", "echo.service")
    policy = agent.policy(units={name: ["DaemonReload", f"Restart {name}"] for name in names})
    host = make_node(files={agent.POLICY: policy})

    def config(name: str, path: str, seconds: int) -> str:
        socket = UnitSpec(f"[Socket]\nListenStream={path}\n[Install]\nWantedBy=sockets.target\n", enabled=True)
        service = UnitSpec(f"[Service]\nExecStart=sleep {seconds}\n")
        return machine_config(name, units={"echo.socket": socket, "echo.service": service})

    for name, path, seconds in (("s1", "/run/e1", 70000), ("s2", "/run/e2", 70000), ("s3", "/run/e2", 80000)):
        agent.apply(host, config(name, path, seconds))
        agent.wait_done(host, name)
        assert newest(host) == ("done", 0, ""), name
        assert host.exists(path)
        for unit in names:
            assert host.is_active(unit), (name, unit)
    assert "80000" in host.run(["pgrep", "-af", "sleep"]).stdout


@pytest.mark.finding("units: masks", "A mask stops a unit that runs, or the plan names it.")
@pytest.mark.finding("units: what stops along", "What a restart stops along is named, and started again or reported.")
@pytest.mark.long
def test_masks_and_units_along(make_node: HostMaker) -> None:
    names = ("zincati", "lock", "keep", "a", "b", "c", "victim")
    relations = {"a": "[Unit]\nPropagatesStopTo=b.service\n", "c": "[Unit]\nBindsTo=a.service\nAfter=a.service\n"}
    files = {f"/usr/lib/systemd/system/{n}.service": f"{relations.get(n, '')}{SLEEP}{WANTED}" for n in names}
    files[agent.POLICY] = agent.policy(
        files={"/etc/a": ["Restart a.service"]},
        units={
            "zincati.service": ["DaemonReload"],
            "lock.service": ["DaemonReload", "Restart lock.service"],
            "keep.service": ["None"],
            "new.service": ["DaemonReload", "Restart new.service"],
        },
    )
    host = make_node(files=files)
    host.run(["systemctl", "enable", "--now", *names])
    agent.apply(host, machine_config("first", files={"/etc/a": "0"}))
    agent.wait_done(host, "first")
    units = {f"{name}.service": UnitSpec(mask=True) for name in ("zincati", "lock", "keep")}
    units["new.service"] = UnitSpec(f"[Unit]\nConflicts=victim.service\n{SLEEP}")
    config = machine_config("second", files={"/etc/a": "1"}, units=units)
    found = plan(host, config)
    assert found[:4] == ["DaemonReload", "Stop lock.service", "Stop zincati.service", "Restart a.service"]
    for note in (
        "keep.service is masked and runs on: no action of the plan stops it",
        "b.service stops as well, with a.service; it is started again afterwards if it can be",
        "c.service restarts as well: it requires a unit that restarts",
        "victim.service stops: it conflicts with new.service, which is started",
    ):
        assert note in found
    agent.apply(host, config)
    agent.wait_done(host, "second")
    outcome, reboots, message = newest(host)
    assert (outcome, reboots) == ("done", 0)
    assert "b.service was stopped with a.service, and started again" in message
    assert "victim.service was stopped with new.service, and is not started again" in message
    running = {name: host.is_active(f"{name}.service") for name in (*names, "new")}
    down = {"zincati", "lock", "victim"}
    assert {name for name, active in running.items() if not active} == down


FLAKY = """\
[Service]
Type=simple
Restart=always
RestartSec=2
ExecStart=/bin/sh -c 'if grep -q 2 /etc/net && ! test -e /run/tried; then touch /run/tried; exit 1; fi; sleep infinity'
[Install]
WantedBy=multi-user.target
"""
ONESHOT = f"[Service]\nType=oneshot\nExecStart=/bin/sh -c '! grep -q 2 /etc/one'\n{WANTED}"


@pytest.mark.finding("units: automatic restarts", "A service that comes up at its second try is waited for.")
@pytest.mark.finding("units: oneshots", "A oneshot that fails is a failure.")
@pytest.mark.long
def test_a_second_try_and_a_oneshot(make_node: HostMaker) -> None:
    policy = agent.policy(files={"/etc/net": ["Restart net.service"], "/etc/one": ["Restart one.service"]})
    host = make_node(
        settings={"actions": {"settle": 1}, "verify": {"timeout": 15}},
        files={agent.POLICY: policy, f"{UNITS}/net.service": FLAKY, f"{UNITS}/one.service": ONESHOT},
    )
    agent.apply(host, machine_config("first", files={"/etc/net": "1", "/etc/one": "1"}))
    agent.wait_done(host, "first")
    host.run(["systemctl", "enable", "--now", "net.service", "one.service"])
    agent.apply(host, machine_config("second", files={"/etc/net": "2", "/etc/one": "1"}))
    agent.wait_done(host, "second")
    assert newest(host)[:2] == ("done", 0)
    assert host.exists("/run/tried")
    agent.apply(host, machine_config("third", files={"/etc/net": "2", "/etc/one": "2"}))
    assert agent.wait_outcome(host, "third", LONG)["outcome"] == "reverted"
    assert newest(host)[:2] == ("reverted", 1)


DEP = "[Service]\nType=oneshot\nExecStart=/bin/sh -c '! grep -q broken /etc/app-dep.conf'\n"
STAT = "[Unit]\nRequires=dep.service\nAfter=dep.service\n[Service]\nExecStart=sleep infinity\n"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.finding("units: proof after an update", "A static unit whose requirement fails is no success.")
@pytest.mark.parametrize("restarts", [True, False], ids=["fallback", "planned reboot"])
def test_a_static_unit_that_is_down_after_the_reboot(make_node: HostMaker, restarts: bool) -> None:
    actions = "Restart stat.service" if restarts else "None"
    lib = "/usr/lib/systemd/system"
    host = make_node(
        settings={"verify": {"timeout": 8}},
        files={
            agent.POLICY: agent.policy(files={"/etc/app-dep.conf": [actions]}),
            f"{lib}/dep.service": DEP,
            f"{lib}/stat.service": STAT,
        },
    )
    host.run(["mkdir", "-p", f"{lib}/multi-user.target.wants"])
    host.run(["ln", "-s", "../stat.service", f"{lib}/multi-user.target.wants/stat.service"])
    agent.apply(host, machine_config("p0", files={"/etc/app-dep.conf": "ok"}))
    agent.wait_done(host, "p0")
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "start", "stat.service"])
    units = {} if restarts else {"stat.service": UnitSpec(dropins={"10-x.conf": "[Service]\nEnvironment=A=1\n"})}
    agent.apply(host, machine_config("p2", files={"/etc/app-dep.conf": "broken"}, units=units))
    assert agent.wait_outcome(host, "p2", LONG)["outcome"] == "reverted"
    message = newest(host)[2]
    assert "dep.service failed" in message
    assert host.is_active("stat.service")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.finding(
    "units: starts without an end", "A unit that never starts and blocks others is no success after a planned reboot."
)
@pytest.mark.parametrize(
    "kind",
    [
        "notify",
        "oneshot",
        "oneshot that blocks none",
    ],
)
def test_a_unit_that_never_starts(make_node: HostMaker, kind: str) -> None:
    host = make_node(settings={"verify": {"timeout": 8}})
    blocks = kind != "oneshot that blocks none"
    unit = f"""\
[Unit]
{"Before=crio.service" if blocks else ""}
[Service]
Type={kind.split()[0]}
TimeoutStartSec=infinity
ExecStart=/bin/sh -c 'while ! test -e /run/never; do sleep 1; done'
{WANTED}"""
    agent.apply(host, machine_config("hangs", units={"wait.service": UnitSpec(unit, enabled=True)}))
    if blocks:
        assert agent.wait_outcome(host, "hangs", LONG)["outcome"] == "reverted"
        assert "wait.service is still starting, and the start of crio.service" in newest(host)[2]
        return
    agent.wait_outcome(host, "hangs", LONG)
    assert newest(host) == ("done", 1, "wait.service is still starting")
