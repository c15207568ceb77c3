# SPDX-License-Identifier: Apache-2.0
"""Updates of the OS that go wrong on a host that bootc updates: signatures, a silent registry, an OS that is no good.

Everything that pulls and stages is real. Each story ends with what the admin does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.nodeagent_client import UnitSpec
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import SMALL, OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import STAGED, OstreeHost
from integration.hosts.ostree.registry_faults import behave, misbehave
from integration.hosts.ostree.test_adapter import LIKE_THE_AGENT
from integration.hosts.ostree.test_harness import fill_boot
from integration.hosts.ostree.test_signatures import KEY, POLICY_JSON
from integration.trees import parts
from integration.trees.image_registry import Published
from integration.trees.tree import BAD, BAD_UNIT, A, B, Part, Tree

PublishNode = Callable[[Tree], Published]
SIGNED = {"quay.io/example": [{"type": "sigstoreSigned", "keyPath": KEY}]}
ANY = [{"type": "insecureAcceptAnything"}]
BROKEN = Tree("41.4.0", B.files, B.units).having(Part("no-true", b"1", lambda root: (root / "usr/bin/true").unlink()))
# A pull by the units of the installed package, with another deadline for one that stands still.
PULL = """
import asyncio, glob, json, sys
sys.path.extend(glob.glob("/usr/lib/nodeagent/lib/python3*/site-packages"))
from pathlib import Path
from nodeagent.core.config.image import parse_image
from nodeagent.errors import AgentError
from nodeagent.features.bootc.units import SysrootUnits, UnitTiming
from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd import Systemd

reported = []

async def main(image, stall):
    async with Bus() as bus:
        units = SysrootUnits(Systemd(bus), Bus, Path("/"), UnitTiming(stall=float(stall), look=1))
        return await units.pull(parse_image(image), reported.append)

try:
    result = {"commit": asyncio.run(main(*sys.argv[1:]))}
except AgentError as error:
    result = {"reason": error.reason, "message": error.message}
print(json.dumps({**result, "layers": [[each.done, each.total] for each in reported]}))
"""


@pytest.fixture
def publish_node(publish_bootc: Publish, package: Path) -> PublishNode:
    return lambda tree: publish_bootc(tree.having(parts.package(package)))


@pytest.fixture
def make_node(make_bootc_host: OstreeHostMaker, publish_node: PublishNode) -> OstreeHostMaker:
    """Makes hosts with A, booted, whose current config is `a` with that image."""

    def make(*, settings: dict[str, Any] | None = None, **options: Any) -> OstreeHost:
        host = make_bootc_host(publish_node(A), **options)
        agent.settings(host, {**SMALL, **(settings or {})})
        host.write(agent.POLICY, updates.POLICY)
        host.boot()
        agent.wait_daemon(host)
        agent.apply(host, updates.config("a", publish_node(A)))
        agent.wait_done(host, "a")
        return host

    return make


def test_only_what_is_signed_is_pulled(make_node: OstreeHostMaker, publish_node: PublishNode) -> None:
    node, b = make_node(), publish_node(B)
    # What a deployment has is not pulled, so the policy is in force from B on.
    node.write(POLICY_JSON, json.dumps({"default": [{"type": "reject"}], "transports": {"docker": SIGNED}}))
    agent.apply(node, updates.config("unsigned", b))
    now = updates.wait_degraded(node, "SignatureInvalid")
    assert (now["current"], now["lease"], node.exists(STAGED)) == ("a", None, False)
    # A config that requires a signature, and a policy that requires none.
    node.write(POLICY_JSON, json.dumps({"default": ANY}))
    updates.apply_again(node, updates.config("signed", f"ostree-image-signed:docker://{b.by_digest}"))
    assert "insecureAcceptAnything" in updates.wait_degraded(node, "SignatureInvalid")["message"]
    assert (node.exists(STAGED), node.reboots) == (False, 0)
    updates.apply_again(node, updates.config("b", b))
    updates.wait_updated(node, "b", B)
    assert node.reboots == 1


@pytest.mark.long
def test_a_registry_that_falls_silent(make_node: OstreeHostMaker, publish_node: PublishNode) -> None:
    node, b = make_node(), publish_node(B)
    node.run(["systemctl", "stop", agent.UNIT])
    node.write("/run/pull.py", PULL)

    misbehave(node, of="/blobs/", hang=True)
    sandbox = [f"--property={one}" for one in LIKE_THE_AGENT]
    python = ["/usr/lib/nodeagent/bin/python3", "-BIS", "/run/pull.py", b.by_digest, "20"]
    said = node.run(["systemd-run", "--quiet", "--pipe", "--wait", *sandbox, *python], timeout=300).stdout
    stalled = json.loads(said)
    assert stalled["reason"] == "PullStalled"
    assert node.run(["pgrep", "skopeo"], check=False).returncode == 1, "its unit was ended"


def test_a_registry_that_is_ill(make_node: OstreeHostMaker, publish_node: PublishNode) -> None:
    """What the config cannot mend is waited for; what it can ends the attempt."""
    node, b = make_node(), publish_node(B)
    misbehave(node, status=401)
    agent.apply(node, updates.config("refused", b))
    now = updates.wait_degraded(node, "Unauthorized")
    assert (now["current"], now["lease"], node.exists(STAGED)) == ("a", None, False)
    misbehave(node, of="/blobs/", wrong=True)
    agent.apply(node, updates.config("wrong", b))
    updates.wait_said(node, "does not match")
    misbehave(node, status=503)
    agent.apply(node, updates.config("b", b))
    updates.wait_said(node, "503 Service Unavailable")
    assert (agent.status(node)["current"], node.exists(STAGED), node.reboots) == ("a", False, 0)
    behave(node)
    updates.wait_updated(node, "b", B)
    assert node.reboots == 1


def test_an_image_whose_programs_do_not_run(make_node: OstreeHostMaker, publish_node: PublishNode) -> None:
    node = make_node()
    agent.apply(node, updates.config("broken", publish_node(BROKEN), kernelArguments=["nosmt"]))
    now = updates.wait_degraded(node, "ImageBroken")
    assert (now["current"], node.exists(STAGED), node.reboots) == ("a", False, 0)
    agent.apply(node, updates.config("b", publish_node(B)))
    updates.wait_updated(node, "b", B)


@pytest.mark.slow
def test_an_os_that_is_no_good(make_node: OstreeHostMaker, publish_node: PublishNode) -> None:
    """BAD_UNIT runs in A, and fails in BAD."""
    node = make_node(settings={"verify": {"timeout": 4}})
    units = {updates.MINE_UNIT: UnitSpec(updates.UNIT, enabled=True), BAD_UNIT: UnitSpec(enabled=True)}
    files = {updates.MINE: "mine of bad\n"}
    image = publish_node(BAD).by_digest
    agent.apply(node, agent.machine_config("bad", files=files, units=units, osImageURL=image))
    ended = agent.wait_outcome(node, "bad", updates.WAIT)
    assert (ended["outcome"], ended["reason"]) == ("reverted", "UnitUnhealthy")
    updates.check(node, "a", A)
    agent.apply(node, updates.config("b", publish_node(B)))
    updates.wait_updated(node, "b", B)


@pytest.mark.slow
def test_boot_is_full(make_node: OstreeHostMaker, publish_node: PublishNode) -> None:
    """Before the update, and at its shutdown."""
    node, b = make_node(boot_size="1m"), publish_node(B)
    fill_boot(node, leave="100K")  # the kernel of B is 64 KiB, its initramfs 256
    done = agent.apply_command(node, updates.config("b", b), check=False)
    assert (done.returncode, "BootFull" in done.stderr, node.exists(STAGED)) == (4, True, False)
    node.run(["rm", "/boot/full"])
    updates.block_reboot(node)
    agent.apply(node, updates.config("b", b))
    updates.wait_blocked(node)
    fill_boot(node, leave="100K")
    updates.unblock_reboot(node)
    ended = agent.wait_outcome(node, "b", updates.WAIT)
    assert (ended["outcome"], ended["reason"]) == ("reverted", "FinalizeFailed")
    assert "No space left on device" in ended["message"]
    updates.check(node, "a", A)
    node.run(["rm", "/boot/full"])
    updates.apply_again(node, updates.config("b", b))
    updates.wait_updated(node, "b", B)
