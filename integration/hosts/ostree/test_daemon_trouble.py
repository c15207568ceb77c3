# SPDX-License-Identifier: Apache-2.0
"""rpm-ostreed, the registry and the agent itself fail in the middle: reported with a reason, and survived."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import time
from collections.abc import Callable

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.errors import HostGone
from integration.hosts.nodeagent_client import FileSpec
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import IMAGE, REGISTRY, OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.hosts.ostree.updates import CUTS, SEED, Rule
from integration.standins.rpmostreed.install import ENVIRONMENT
from integration.trees.image_registry import Registry
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.tree import A, B, Tree
from nodeagent.features.rpmostree.reasons import RpmOstreeReason
from nodeagent.reasons import Reason

PULL_SECRET = "/var/lib/kubelet/config.json"


@pytest.mark.parametrize("year", [2022, 2024])
def test_older_daemons(make_node_at_a: OstreeHostMaker, publish: Publish, year: int) -> None:
    settings = f"RPMOSTREED_STANDIN_REGISTRY={REGISTRY}\nRPMOSTREED_STANDIN_LIKE={year}\n"
    node = make_node_at_a(files={f"/{ENVIRONMENT}": settings})
    updates.block_reboot(node)
    agent.apply(node, updates.config("b", publish(B), kernelArguments=["nosmt"]))
    updates.wait_blocked(node)
    assert updates.shown(agent.status(node)) == [f"{B.version} staged locked", f"{A.version} booted"]
    updates.unblock_reboot(node)
    updates.wait_updated(node, "b", B)
    assert node.reboots == 1
    assert node.cmdline.count("nosmt") == 1


def test_the_daemon_is_gone_for_a_moment(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    gone: dict[str, Rule] = {
        "while it pulls": {"at": "layer:2", "do": "die", "times": 1},
        "when it has staged": {"at": "staged", "do": "die", "times": 1},
        "from the bus only": {"at": "layer:2", "do": "drop-name", "times": 1},
    }
    for number, rule in enumerate(gone.values()):
        updates.inject_faults(node, rule)
        name, tree = (("b", B), ("a", A))[number % 2]
        agent.apply(node, updates.config(name, publish(tree)))
        updates.wait_updated(node, name, tree)
        assert node.reboots == number + 1


def test_a_staging_that_fails(node_at_a: OstreeHost, publish: Publish) -> None:
    """Nothing was changed, the reason is reported, and an operator need not wait for the next attempt of the agent."""
    node, config = node_at_a, updates.config("b", publish(B))
    failures: dict[str, Rule] = {
        "StageIncomplete": {"at": "pull", "do": "succeed"},
        "ImageNotFound": {"at": "pull", "do": "fail", "error": "not-found"},
        "SignatureInvalid": {"at": "pull", "do": "fail", "error": "signature"},
        "NoSpace": {"at": "layer:3", "do": "fail", "error": "disk-full"},
    }
    for reason, rule in failures.items():
        updates.inject_faults(node, rule)
        agent.apply(node, config)
        failed = updates.wait_degraded(node, reason)
        assert (failed["current"], failed["lease"]) == ("a", None)
        assert agent.outcomes(node) == [("a", "done")]
        assert node.read_text(updates.MINE) == "mine of a\n"
    updates.inject_faults(node)
    updates.apply_again(node, config)
    updates.wait_updated(node, "b", B)
    assert node.reboots == 1


def test_the_network_comes_back(node_at_a: OstreeHost, publish: Publish) -> None:
    """The update continues without a request. The first pause is half a minute."""
    updates.inject_faults(node_at_a, {"at": "pull", "do": "fail", "error": "network", "times": 1})
    agent.apply(node_at_a, updates.config("b", publish(B)))
    updates.wait_retried(node_at_a, Reason.REGISTRY_UNREACHABLE)
    updates.wait_updated(node_at_a, "b", B)
    assert node_at_a.reboots == 1


ONE_MINUTE = """\
cd /usr/lib/nodeagent/lib/python3*/site-packages/nodeagent/features/rpmostree
file=$(grep -l 'stall: float = 3600.0' *.py)
sed 's/stall: float = 3600.0/stall: float = 60.0/' $file >/run/stall.py
mount --bind /run/stall.py $file
mount -t tmpfs none __pycache__
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_transaction_that_never_ends(node_at_a: OstreeHost, publish: Publish) -> None:
    node = node_at_a
    # The limit is a constant of an hour. The modified copy disappears with the reboot of the update.
    node.run(["sh", "-ec", ONE_MINUTE])
    node.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(node)
    updates.inject_faults(node, {"at": "layer:2", "do": "hang", "times": 1})
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_retried(node, RpmOstreeReason.TRANSACTION_STUCK, timeout=120)
    updates.wait_updated(node, "b", B)
    assert node.reboots == 1


def test_the_agent_is_killed_while_staging(node_at_a: OstreeHost, publish: Publish) -> None:
    """The transaction goes on without it, and the next one joins in."""
    node = node_at_a
    updates.inject_faults(node, updates.SLOW)
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_step(node, "Fetching ostree chunk")
    node.kill(agent.UNIT)
    updates.wait_updated(node, "b", B)
    assert agent.outcomes(node) == [("a", "done"), ("b", "done")]
    assert node.reboots == 1


@pytest.mark.slow
def test_the_agent_is_killed_at_random_times(node_at_a: OstreeHost, publish: Publish) -> None:
    node, chance = node_at_a, random.Random(SEED)
    print(f"NODEAGENT_CUTS={CUTS} NODEAGENT_CUTS_SEED={SEED}")
    for number in range(CUTS):
        name, tree = (("b", B), ("a", A))[number % 2]
        agent.apply(node, updates.config(name, publish(tree)))
        time.sleep(after := chance.uniform(0, 2.5))
        print(f"kill {number} after {after:.3f} s")
        with contextlib.suppress(HostGone):  # a fast machine may be in the reboot already: then nothing is killed
            node.run(["systemctl", "kill", "--signal=KILL", "--kill-whom=main", agent.UNIT], check=False)
        updates.wait_updated(node, name, tree)
        assert node.reboots == number + 1


def test_the_daemon_does_not_start_after_the_boot(make_node_at_a: OstreeHostMaker, publish: Publish) -> None:
    """D-Bus reports it after 25 seconds, which is no reason for a revert."""
    faults = "/var/lib/faults.json"
    settings = f"RPMOSTREED_STANDIN_REGISTRY={REGISTRY}\nRPMOSTREED_STANDIN_FAULTS={faults}\n"
    node = make_node_at_a(files={f"/{ENVIRONMENT}": settings})
    updates.block_reboot(node)
    agent.apply(node, updates.config("b", publish(B)))
    updates.wait_blocked(node)
    node.write(faults, json.dumps({"rules": [{"at": "boot", "do": "die", "times": 1}]}))
    updates.unblock_reboot(node)
    updates.wait_updated(node, "b", B)
    assert node.reboots == 1
    assert agent.outcomes(node) == [("a", "done"), ("b", "done")]


def test_the_pull_secret_is_used_and_removed(
    node_at_a: OstreeHost, ostree_repo: OstreeRepo, registry: Registry, node_tree: Callable[[Tree], Tree]
) -> None:
    node = node_at_a
    private = Tree("41.9.0", B.files, B.units)
    image = registry.publish(
        ostree_repo.commit(node_tree(private)), f"{IMAGE}-private", private.version, "--user=me", "--password=right"
    )

    def config(name: str, password: str) -> str:
        login = base64.b64encode(f"me:{password}".encode()).decode()
        secret = FileSpec(json.dumps({"auths": {"quay.io": {"auth": login}}}), mode=0o600)
        files: dict[str, str | bytes | FileSpec] = {updates.MINE: f"mine of {name}\n", PULL_SECRET: secret}
        units = {updates.MINE_UNIT: agent.UnitSpec(updates.UNIT, enabled=True)}
        return agent.machine_config(name, files=files, units=units, osImageURL=image.by_digest)

    agent.apply(node, config("wrong", "wrong"))
    now = agent.wait_phase(node, "Degraded")
    assert (now["reason"], now["current"]) == ("Unauthorized", "a")
    assert not node.exists(updates.AUTH)
    updates.inject_faults(node, updates.SLOW)
    agent.apply(node, config("right", "right"))
    updates.wait_step(node, "Fetching ostree chunk")
    assert node.run(["stat", "--format=%a %U", updates.AUTH]).stdout == "600 root\n"
    updates.wait_updated(node, "right", private)
    assert agent.occurrences(node, ['right"', base64.b64encode(b"me:right").decode()]) == []
