# SPDX-License-Identifier: Apache-2.0
"""nodeagent's adapter on a real host: libostree's own command unlocks, in a unit that the real systemd makes.

The agent is stopped; what runs is the adapter of the installed package, in a unit with the agent's restrictions.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.hosts.ostree.conftest import Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees.tree import A, B

_SCRIPT = """
import asyncio, glob, json, sys
sys.path.extend(glob.glob("/usr/lib/nodeagent/lib/python3*/site-packages"))
from nodeagent.core.plan.deployment import OsTarget
from nodeagent.core.config.image import parse_image
from nodeagent.errors import AgentError
from nodeagent.host.dbus.client import Bus
from nodeagent.features.FEATURE.adapter import ADAPTER
from nodeagent.host.systemd import Systemd

async def main(do, *arguments):
    async with Bus() as bus:
        os = ADAPTER(Systemd(bus), min_free=0)
        target = OsTarget(image=parse_image(arguments[0]), kernel_arguments=("nosmt",)) if arguments else None
        if do == "stage":
            await os.check_stageable(target)
            await os.stage(target, credentials=b"{}", replace="", on_progress=lambda progress: None)
        elif do == "unlock":
            await os.unlock((await os.list())[0].id)
        elif do != "list":
            return await getattr(os, do)()
        return [[d.digest, d.booted, d.staged, d.locked, d.kernel_arguments] for d in await os.list()]

try:
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
except AgentError as error:
    print(json.dumps({"reason": error.reason, "message": error.message}))
"""


def script(feature: str, adapter: str) -> str:
    """Return the program, with the back end of a feature."""
    return _SCRIPT.replace("FEATURE", feature).replace("ADAPTER", adapter)


SCRIPT = script("rpmostree", "RpmOstree")
# Of nodeagent.service, what could stand in the way.
LIKE_THE_AGENT = (
    "ProtectSystem=yes",
    "PrivateMounts=yes",
    "PrivateDevices=yes",
    "ProtectKernelTunables=yes",
    "ProtectControlGroups=yes",
    "NoNewPrivileges=yes",
    "RestrictNamespaces=yes",
    "MemoryDenyWriteExecute=yes",
    "SystemCallFilter=@system-service",
    "SystemCallErrorNumber=EPERM",
    "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_FSETID CAP_AUDIT_WRITE CAP_SYS_NICE",
    "RestrictAddressFamilies=AF_UNIX AF_NETLINK AF_INET AF_INET6",
    "UMask=0077",
)


@pytest.fixture
def node(ostree_node: OstreeHost) -> OstreeHost:
    ostree_node.run(["systemctl", "stop", "nodeagent"])
    ostree_node.write("/run/adapter.py", SCRIPT)
    return ostree_node


def ask(node: OstreeHost, *arguments: str) -> Any:
    properties = [f"--property={one}" for one in LIKE_THE_AGENT]
    python = ["/usr/lib/nodeagent/bin/python3", "-BIS", "/run/adapter.py", *arguments]
    return json.loads(node.run(["systemd-run", "--quiet", "--pipe", "--wait", *properties, *python], timeout=60).stdout)


def test_staged_unlocked_booted_and_back(node: OstreeHost, publish: Publish) -> None:
    image = publish(B)
    staged, booted = ask(node, "stage", image.by_digest)
    digest = image.by_digest.rpartition("@")[2]
    assert staged[:4] == [digest, False, True, True]
    assert "nosmt" in staged[4]
    unlocked = ask(node, "unlock")[0]
    assert unlocked[:4] == [digest, False, True, False]
    assert ask(node, "unlock")[0] == unlocked
    assert node.run(["systemctl", "is-active", "ostree-finalize-staged.service"]).stdout.strip() == "active"
    with node.rebooting():
        node.run(["systemctl", "reboot"])
    node.run(["systemctl", "stop", "nodeagent"])
    node.write("/run/adapter.py", SCRIPT)
    assert f"OSTREE_VERSION='{B.version}'" in node.read_text("/etc/os-release")
    assert "nosmt" in node.cmdline
    assert ask(node, "finalize_failure") == ""
    ask(node, "rollback")
    assert ask(node, "list")[0][:2] == [publish(A).by_digest.rpartition("@")[2], False]
    assert booted[1]
