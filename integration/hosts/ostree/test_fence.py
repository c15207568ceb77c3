# SPDX-License-Identifier: Apache-2.0
"""The I/O fence where there is little to limit: a container has no io controller, and /sys is read-only there."""

from __future__ import annotations

import json

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import SMALL, Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.hosts.ostree.test_adapter import LIKE_THE_AGENT
from integration.trees.image_registry import Published
from integration.trees.tree import B

UNIT = "rpm-ostreed.service"
CONFIG = "/sysroot/ostree/repo/config"
EACH_OBJECT = "per-object-fsync=true"
SCRIPT = """\
import asyncio, glob, sys
from functools import partial
from pathlib import Path
sys.path.extend(glob.glob("/usr/lib/nodeagent/lib/python3*/site-packages"))
from nodeagent.host.dbus.client import Bus
from nodeagent.features.fence.actuators.object_fsync import ObjectFsync
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.features.rpmostree.client import works_for_another

async def main(what):
    async with Bus() as bus:
        fsync = ObjectFsync(bus, RestoreLog(Path("/run/nodeagent/fence")), "rpm-ostreed.service")
        await (fsync.begin(partial(works_for_another, Bus)) if what == "begin" else fsync.end())

asyncio.run(main(sys.argv[1]))
"""


def objects(node: OstreeHost, what: str) -> None:
    sandbox = [word for line in LIKE_THE_AGENT for word in ("--property", line)]
    python = ["/usr/lib/nodeagent/bin/python3", "-BIS", "/run/objects.py", what]
    node.run(["systemd-run", "--wait", "--pipe", "--quiet", *sandbox, *python], timeout=120)


def repository(node: OstreeHost) -> str:
    """Its configuration as rpm-ostreed sees it, which is started by the question."""
    node.run(["busctl", "get-property", "org.projectatomic.rpmostree1", "/org/projectatomic/rpmostree1/Sysroot",
              "org.projectatomic.rpmostree1.Sysroot", "Booted"])  # fmt: skip
    pid = node.unit(UNIT, "MainPID")["MainPID"]
    return node.run(["nsenter", f"--target={pid}", "--mount", "cat", CONFIG]).stdout


def test_an_update_without_a_fence(node_at_a: OstreeHost, publish: Publish) -> None:
    update_without_fence(node_at_a, publish(B))


def test_an_update_of_a_host_of_bootc_without_a_fence(bootc_node_at_a: OstreeHost, publish_bootc_node: Publish) -> None:
    update_without_fence(bootc_node_at_a, publish_bootc_node(B))


def update_without_fence(node: OstreeHost, b: Published) -> None:
    agent.settings(node, {**SMALL, "fence": {"enabled": "always"}})
    node.run(["systemctl", "reload", agent.UNIT])
    agent.apply(node, updates.config("b", b))
    updates.wait_updated(node, "b", B)
    said = [line for line in updates.said(node).splitlines() if line.startswith("fence: ")]
    assert len(said) == 1, said
    assert said[0].startswith("fence: not active, "), said
    assert agent.status(node)["fence"] is None
    assert json.loads(node.run(["nodeagent", "status", "--json"]).stdout)["fence"] is None
    assert not node.exists("/run/nodeagent/fence")


def test_each_object_is_synced_for_rpm_ostreed_alone(node_at_a: OstreeHost) -> None:
    node = node_at_a
    node.write("/run/objects.py", SCRIPT)
    before = node.read_text(CONFIG)
    assert EACH_OBJECT not in repository(node)
    objects(node, "begin")
    assert EACH_OBJECT in repository(node)
    assert node.read_text(CONFIG) == before, "the file itself stays as it is"
    objects(node, "end")
    node.run(["systemctl", "stop", UNIT])
    assert repository(node) == before
    assert not node.exists(f"/run/systemd/system/{UNIT}.d/50-nodeagent-fence.conf")
