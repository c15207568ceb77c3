# SPDX-License-Identifier: Apache-2.0
"""Actions that fail on a real host: one reboot, never a second one, and then done, reverted or degraded.

flaky.service behaves as its config file says, for good or until the next boot. systemd reports every failure, every
reboot is one of the container.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import KILLABLE, KILLPOINTS, SSH_KEY
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import FileSpec, UnitSpec
from integration.hosts.snapshot import difference

MODE = "/etc/flaky/mode"
POLICY = agent.policy(
    files={
        "/etc/flaky": ["Restart flaky.service"],
        "/etc/reloadable.conf": ["Reload reloadable.service"],
        "/etc/quiet": ["None"],
    },
    units={"extra.service": ["DaemonReload", "Restart extra.service"], "crio.service": ["DaemonReload"]},
)
QUICK = {"actions": {"timeout": 8, "settle": 1}, "verify": {"timeout": 8}}
LATE = {"actions": {"timeout": 3, "settle": 1}, "verify": {"timeout": 3}}
PATIENT = {"actions": {"timeout": 8, "settle": 4}, "verify": {"timeout": 10}}  # sees a death after 3 s

GOOD = agent.machine_config("good", files={MODE: "ok"})


def started(make_node: HostMaker, settings: dict[str, object], files: Mapping[str, str] | None = None) -> Host:
    """A host on which `good` is the current config."""
    host = make_node(settings={**QUICK, **settings}, files={agent.POLICY: POLICY, **(files or {})})
    agent.apply(host, GOOD)
    agent.wait_done(host, "good")
    return host


LIMITED = {"/etc/systemd/system/flaky.service.d/50-limit.conf": "[Unit]\nStartLimitIntervalSec=1h\nStartLimitBurst=2\n"}


def flaky(name: str, mode: str) -> str:
    return agent.machine_config(name, files={MODE: mode})


def apply_and_reboot(host: Host, config: str) -> None:
    with host.rebooting():
        agent.apply(host, config)


def assert_calm(host: Host, reboots: int) -> None:
    """Nothing happens any more, neither after a restart of the daemon nor after a reboot by another program."""
    before = agent.history(host)
    at_rest = agent.status(host)["phase"]
    host.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(host)
    assert host.reboots == reboots
    with host.rebooting():
        host.run(["systemctl", "reboot"])
    agent.wait_daemon(host)
    host.run(["sleep", "2"])
    assert host.reboots == reboots + 1
    assert agent.status(host)["phase"] == at_rest
    assert agent.history(host) == before


@pytest.mark.long
def test_a_unit_at_its_start_limit_is_cured_without_a_reboot(make_node: HostMaker) -> None:
    host = make_node(settings=QUICK, files={agent.POLICY: POLICY, **LIMITED})
    host.write(MODE, "fail")
    restart = ["systemctl", "restart", "flaky.service"]
    for _ in range(3):
        host.run(restart, check=False)
    host.write(MODE, "ok from now on")
    assert host.run(restart, check=False).returncode != 0, "it is refused, whatever it would do"
    agent.apply(host, GOOD)
    agent.wait_done(host, "good")
    assert host.is_active("flaky.service")
    assert host.reboots == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "settings", "reason"),
    [
        ("fail until-reboot", QUICK, "JobFailed"),
        pytest.param("hang until-reboot", LATE, "JobTimeout", marks=pytest.mark.long),
        pytest.param("die 3 until-reboot", PATIENT, "UnitUnhealthy", marks=pytest.mark.long),
    ],
    ids=["fails", "hangs past its deadline", "dies after 3 s"],
)
def test_a_reboot_that_cures(make_node: HostMaker, mode: str, settings: dict[str, object], reason: str) -> None:
    host = started(make_node, settings)
    apply_and_reboot(host, flaky("new", mode))
    agent.wait_done(host, "new")
    assert host.reboots == 1
    assert host.is_active("flaky.service")
    assert host.read_text(MODE) == mode
    (entry, _) = agent.history(host)
    assert (entry["outcome"], entry["reboots"], entry["reboot_avoided"]) == ("done-after-fallback", 1, False)
    assert "flaky.service" in entry["reason"] + entry["message"]
    entries = [e for e in host.journal("nodeagent.service") if "falling back to a reboot" in e["MESSAGE"]]
    assert [e["NODEAGENT_REASON"] for e in entries] == [reason]
    assert agent.status(host)["lease"] is None
    if settings is QUICK:
        assert_calm(host, reboots=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("fail", QUICK),
        pytest.param("hang", LATE, marks=pytest.mark.long),
        pytest.param("die 3", PATIENT, marks=pytest.mark.long),
    ],
    ids=["fails", "hangs past its deadline", "dies after 3 s"],
)
def test_a_reboot_that_does_not_cure(make_node: HostMaker, mode: str, settings: dict[str, object]) -> None:
    host = started(make_node, settings)
    apply_and_reboot(host, flaky("bad", mode))
    entry = agent.wait_outcome(host, "bad")
    assert (entry["outcome"], entry["reboots"]) == ("reverted", 1)
    assert host.reboots == 1
    assert host.read_text(MODE) == "ok"
    assert host.is_active("flaky.service"), "it was restarted with the old config"
    now = agent.status(host)
    assert (now["phase"], now["reason"], now["current"]) == ("Degraded", "Reverted", "good")
    assert now["lease"] is None, "the host is as it was and serves; others may have it"


@pytest.mark.long
def test_reverted_stays_reverted_until_requested(make_node: HostMaker) -> None:
    host = started(make_node, {})
    bad = flaky("bad", "fail")
    apply_and_reboot(host, bad)
    agent.wait_outcome(host, "bad")
    assert_calm(host, reboots=1)
    # A request of an operator gets one more attempt, with one more reboot and not two.
    apply_and_reboot(host, bad)
    host.wait_for(lambda: len(agent.outcomes(host)) == 3, "the second try ends")
    assert agent.outcomes(host) == [("good", "done"), ("bad", "reverted"), ("bad", "reverted")]
    assert host.reboots == 3
    agent.apply(host, GOOD)
    agent.wait_done(host, "good")
    assert host.reboots == 3
    agent.apply(host, flaky("fixed", "ok "))
    agent.wait_done(host, "fixed")
    assert host.reboots == 3


@pytest.mark.finding(
    "updates: budget of fallback reboots", "Another rendering of a config that failed is not applied again."
)
@pytest.mark.long
def test_other_renderings_of_what_failed_cost_no_reboot(make_node: HostMaker) -> None:
    def rendered(number: int) -> str:
        config = json.loads(flaky(f"bad-{number}", "fail"))
        config["metadata"]["annotations"] = {"renderedAt": str(number)}
        return json.dumps(config)

    def seen() -> bool:
        return bool(agent.status(host)["desired"] == f"bad-{number}")

    host = started(make_node, {})
    with host.rebooting():
        agent.write_desired(host, rendered(1))
    agent.wait_outcome(host, "bad-1")
    for number in (2, 3, 4):
        agent.write_desired(host, rendered(number))
        host.wait_for(seen, "the agent has read it")
    now = agent.status(host)
    assert (now["phase"], now["reason"], now["current"]) == ("Degraded", "ConfigRejected", "good")
    assert "failed on this host as bad-1" in now["message"]
    assert agent.outcomes(host) == [("good", "done"), ("bad-1", "reverted")]
    assert host.reboots == 1


@pytest.mark.long
def test_degraded_instead_of_reverted(make_node: HostMaker) -> None:
    host = started(make_node, {"on_failure": "degraded"})
    apply_and_reboot(host, flaky("bad", "fail"))
    entry = agent.wait_outcome(host, "bad")
    assert (entry["outcome"], entry["reboots"]) == ("degraded", 1)
    now = agent.status(host)
    assert (now["phase"], now["reason"], now["current"]) == ("Degraded", "UnitUnhealthy", "good")
    assert host.read_text(MODE) == "fail", "it is left for an operator"
    assert now["lease"], "no other holder may disrupt a node in this state"
    assert_calm(host, reboots=1)
    agent.apply(host, flaky("fixed", "ok "))
    agent.wait_done(host, "fixed")
    assert host.is_active("flaky.service")
    assert agent.status(host)["lease"] is None


@pytest.mark.long
def test_no_reboot_where_none_is_allowed(make_node: HostMaker) -> None:
    host = started(make_node, {"reboot": {"allow": False}})
    agent.apply(host, flaky("bad", "fail until-reboot"))
    entry = agent.wait_outcome(host, "bad")
    assert (entry["outcome"], entry["reboots"], entry["reason"]) == ("reverted", 0, "JobFailed")
    assert entry["message"].endswith("the job ended as 'failed', exit status 1")
    assert host.reboots == 0
    assert host.is_active("flaky.service")


@pytest.mark.long
def test_a_reload_that_fails(make_node: HostMaker) -> None:
    host = started(make_node, {})
    host.write(
        "/etc/systemd/system/reloadable.service.d/10-broken.conf",
        "[Service]\nExecReload=\nExecReload=/bin/false\n",
    )
    host.run(["systemctl", "daemon-reload"])
    apply_and_reboot(host, agent.machine_config("new", files={MODE: "ok", "/etc/reloadable.conf": "new"}))
    agent.wait_done(host, "new")
    assert agent.outcomes(host) == [("good", "done"), ("new", "done-after-fallback")]
    assert host.reboots == 1
    assert host.is_active("reloadable.service")


@pytest.mark.parametrize(
    "mode",
    ["fail until-reboot", pytest.param("fail", marks=pytest.mark.long)],
    ids=["a reboot cures it", "a reboot does not cure it"],
)
@pytest.mark.long
def test_killed_on_the_way(make_node: HostMaker, mode: str) -> None:
    """A daemon that dies while it falls back or reverts does not do so twice."""
    host = started(make_node, {}, files=KILLABLE)
    points = ["step-failed restart flaky.service", "phase Rebooting"]
    if mode == "fail":
        points += ["phase Reverting", "phase Verifying"]
    for number, point in enumerate(points, 1):
        name = f"bad-{number}"
        host.write(f"{KILLPOINTS}/at", f"kill {point}")
        apply_and_reboot(host, flaky(name, f"{mode}{' ' * number}"))
        entry = agent.wait_outcome(host, name)
        assert not host.exists(f"{KILLPOINTS}/at"), f"{point} was not reached"
        assert host.reboots == number, f"killed at {point}"
        assert entry["reboots"] == 1
        assert entry["outcome"] == ("reverted" if mode == "fail" else "done-after-fallback")
        assert host.is_active("flaky.service")


@pytest.mark.long
def test_a_revert_restores_everything(make_node: HostMaker) -> None:
    unit = "[Unit]\nDescription=An extra service\n[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy={}\n"
    good = agent.machine_config(
        "good",
        files={
            MODE: "ok",
            "/etc/quiet/changed": FileSpec("old", 0o600, user="core", group="core"),
            "/etc/quiet/deep/removed": FileSpec("to be back", 0o440),
        },
        units={
            "extra.service": UnitSpec(unit.format("multi-user.target"), enabled=True),
            "crio.service": UnitSpec(dropins={"10-old.conf": "[Service]\nEnvironment=OLD=1\n"}),
        },
        keys=[SSH_KEY],
        password_hash=agent.password_hash("old"),
    )
    bad = agent.machine_config(
        "bad",
        files={
            MODE: "fail",
            "/etc/quiet/changed": FileSpec("new", 0o644),
            "/etc/quiet/new/directory/file": "new",
            "/etc/containers/registries.conf": 'unqualified-search-registries = ["other.example.com"]\n',
        },
        units={
            "extra.service": UnitSpec(unit.format("basic.target"), enabled=False),
            "crio.service": UnitSpec(dropins={"20-new.conf": "[Service]\nEnvironment=NEW=1\n"}),
            "reloadable.service": UnitSpec(mask=True),
        },
        keys=[SSH_KEY.replace("GKBG", "GKBH")],
        password_hash=agent.password_hash("new"),
    )
    policy = agent.policy(
        files={"/etc/flaky": ["Restart flaky.service"], "/etc/quiet": ["None"]},
        units={
            "extra.service": ["DaemonReload", "Restart extra.service"],
            "crio.service": ["DaemonReload"],
            "reloadable.service": ["DaemonReload"],
        },
    )
    host = make_node(settings=QUICK, files={agent.POLICY: policy})
    agent.apply(host, good)
    agent.wait_done(host, "good")
    before = host.snapshot("/etc", "/var/home")
    apply_and_reboot(host, bad)
    entry = agent.wait_outcome(host, "bad")
    assert entry["outcome"] == "reverted"
    changed = [line for line in difference(before, host.snapshot("/etc", "/var/home")) if agent.DESIRED not in line]
    # chpasswd rewrites the shadow file; only the hash counts there.
    assert [line.split(":")[0] for line in changed] in ([], ["/etc/shadow-"]), changed
    assert f"core:{agent.password_hash('old')}:" in host.read_text("/etc/shadow")
    state = host.unit("extra.service", "UnitFileState", "ActiveState")
    assert (state["UnitFileState"], state["ActiveState"]) == ("enabled", "active")
    assert "OLD=1" in host.unit("crio.service", "Environment")["Environment"]
    assert host.is_active("flaky.service")
    assert host.reboots == 1
