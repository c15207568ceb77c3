# SPDX-License-Identifier: Apache-2.0
"""A real etcd as a unit of a real host: the first one that a config brings, the guard of a changed and a failed
unit, the copy of the keyspace, the way back, and what must not change."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.errors import CommandFailed
from integration.hosts.node.conftest import NodeMaker
from integration.hosts.node.node_host import NodeHost
from integration.hosts.node.node_programs import ETCD_PROGRAMS
from integration.hosts.nodeagent_client import UnitSpec, machine_config, wait_done, wait_outcome, wait_phase

UNIT: Final = "etcd.service"
CONFIG: Final = "/etc/etcd/etcd.conf.yaml"
SAVED: Final = "/var/lib/nodeagent/etcd-before-change.db"
ADDRESSES: Final = {"a": "127.0.0.11", "b": "127.0.0.12", "c": "127.0.0.13"}
# Members of other hosts, whose processes must not be taken for that of this host.
ELSEWHERE: Final = "/srv/member-of-another-host"
READY: Final = 60.0
PROGRAM: Final = f"{ETCD_PROGRAMS}/etcd"
HEALTHY: Final = dict.fromkeys(ADDRESSES, "")
MOVED: Final = f"http://{ADDRESSES['c']}:3379"


def member(name: str, **more: Any) -> str:
    address = ADDRESSES[name]
    client, peer = f"http://{address}:2379", f"http://{address}:2380"
    return json.dumps(
        {
            "name": name,
            "data-dir": f"/var/lib/etcd-{name}",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": ",".join(f"{each}=http://{where}:2380" for each, where in ADDRESSES.items()),
            "log-level": "warn",
            **more,
        }
    )


def unit(program: str, config: str, *flags: str, description: str = "etcd") -> str:
    return (
        f"[Unit]\nDescription={description}\n[Service]\nType=notify\nRestart=on-failure\nRestartSec=1\n"
        f"ExecStart={program} --config-file={config} {' '.join(flags)}\n[Install]\nWantedBy=multi-user.target\n"
    )


def desired(name: str, text: str, **options: Any) -> str:
    return machine_config(
        name, files={CONFIG: member("c", **options)}, units={UNIT: UnitSpec(contents=text, enabled=True)}
    )


def states(node: NodeHost) -> dict[str, str]:
    """The members by name with their troubles, as `nodeagent etcd status` has them."""
    found = json.loads(node.run(["nodeagent", "etcd", "status", "--json"], check=False).stdout)
    return {each["name"]: each["trouble"] for each in found["members"]}


def start_of(node: NodeHost) -> str:
    return node.unit(UNIT, "InvocationID")["InvocationID"]


@pytest.fixture
def node(make_agent_node: NodeMaker) -> NodeHost:
    """A node to which a config has brought its first etcd, and two members that run as if on other hosts."""
    # A busy machine starts etcd slowly.
    made = make_agent_node("unit-of-etcd", {"actions": {"timeout": READY}})
    made.run(["cp", f"{ETCD_PROGRAMS}/etcd", ELSEWHERE])
    for name in ("a", "b"):
        made.write(f"/etc/other-{name}.yaml", member(name))
        made.write(f"/etc/systemd/system/other-{name}.service", unit(ELSEWHERE, f"/etc/other-{name}.yaml"))
    made.run(["systemctl", "daemon-reload"])
    made.run(["systemctl", "start", "other-a.service", "other-b.service"], timeout=READY)
    agent.apply(made, desired("one", unit(PROGRAM, CONFIG)))
    wait_done(made, "one", agent.REBOOT_TIMEOUT)
    made.wait_for(lambda: states(made) == HEALTHY, "all members are healthy", READY)
    return made


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_changed_unit_waits_for_the_quorum_and_a_bad_one_is_reverted(node: NodeHost) -> None:
    saved = json.loads(node.run(["nodeagent", "etcd", "snapshot", "/root/keys.db", "--json"]).stdout)
    assert node.run(["stat", "-c", "%a %s", "/root/keys.db"]).stdout.split() == ["600", str(saved["size"])]
    found = json.loads(node.run(["nodeagent", "etcd", "status", "--json"]).stdout)
    assert (found["allowed"], f"unit {UNIT}" in found["signs"]) == (True, True)
    before = start_of(node)

    # Comments restart nothing.
    commented = machine_config(
        "comment",
        files={CONFIG: f"# The member of this host.\n{member('c')}\n"},
        units={UNIT: UnitSpec(contents=unit(PROGRAM, CONFIG), enabled=True)},
    )
    agent.apply(node, commented)
    wait_done(node, "comment")
    assert (start_of(node), node.exists(SAVED)) == (before, False)

    # A member of another host is down: the unit is not stopped.
    node.run(["systemctl", "stop", "other-a.service"])
    assert states(node)["a"]
    changed = desired(
        "two",
        unit(PROGRAM, CONFIG, description="etcd of this host"),
        **{"snapshot-count": 5000, "listen-client-urls": MOVED, "advertise-client-urls": MOVED},
    )
    agent.apply(node, changed)
    status = wait_phase(node, "Leasing", reason="EtcdQuorumAtRisk", timeout=READY)
    assert "a: does not answer" in status["message"]
    assert (start_of(node), node.exists(SAVED)) == (before, False)
    assert "snapshot-count" not in node.read_text(CONFIG)
    # With the quorum the unit changes, and its addresses: the member is found at the old ones, and then at the new.
    node.run(["systemctl", "start", "other-a.service"], timeout=READY)
    wait_done(node, "two", agent.REBOOT_TIMEOUT)
    second = start_of(node)
    assert second != before
    assert node.exists(SAVED)
    node.wait_for(lambda: states(node) == HEALTHY, "all members are healthy", READY)
    assert node.reboots == 0

    # An etcd that ends with its options is no case for a reboot.
    agent.apply(
        node, desired("bad", unit(PROGRAM, CONFIG).replace("Restart=on-failure", ""), **{"snapshot-count": "x"})
    )
    ended = wait_outcome(node, "bad", agent.REBOOT_TIMEOUT)
    assert (ended["outcome"], ended["reboots"], node.reboots) == ("reverted", 0, 0), ended
    assert MOVED in node.read_text(CONFIG)
    node.wait_for(lambda: states(node) == HEALTHY, "the member is back", READY)

    # Without its data the member would lose its log.
    with pytest.raises(CommandFailed, match=r"InvalidContent.*data directory of etcd"):
        agent.apply(node, desired("moved", unit(PROGRAM, CONFIG), **{"data-dir": "/var/lib/elsewhere"}))
    assert states(node) == HEALTHY


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_unit_that_does_not_start_is_repaired_by_a_config(make_agent_node: NodeMaker) -> None:
    """The only member of its cluster: nothing can allow the repair but the fact that it does not run."""
    node = make_agent_node("repaired-etcd", {"actions": {"timeout": READY}})
    alone = {"initial-cluster": f"c=http://{ADDRESSES['c']}:2380"}
    node.write(CONFIG, member("c", **alone, **{"snapshot-count": "x"}))
    node.write(f"/etc/systemd/system/{UNIT}", unit(PROGRAM, CONFIG))
    node.run(["systemctl", "daemon-reload"])
    node.run(["systemctl", "enable", "--now", UNIT], check=False, timeout=READY)
    assert json.loads(node.run(["nodeagent", "etcd", "status", "--json"], check=False).stdout)["allowed"] is False
    agent.apply(node, desired("repaired", unit(PROGRAM, CONFIG), **alone))
    wait_done(node, "repaired", agent.REBOOT_TIMEOUT)
    node.wait_for(lambda: states(node) == {"c": ""}, "the member works", READY)
    # Now it runs, and nothing but a setting allows that the only member stops.
    agent.apply(node, desired("next", unit(PROGRAM, CONFIG), **alone, **{"snapshot-count": 5000}))
    wait_phase(node, "Leasing", reason="EtcdNotRedundant", timeout=READY)
