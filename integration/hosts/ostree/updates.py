# SPDX-License-Identifier: Apache-2.0
"""Updates of the OS by the agent: configs, how to watch one at a given point, and faults of the stand-in.

A config of these tests always has a file and a unit beside the image, because what goes wrong with an update is seen
in what is on which side: files of the new config with the old OS, or the other way round.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import UnitSpec
from integration.hosts.ostree.ostree_host import STAGED, deployments_of
from integration.hosts.testhost import TestHost
from integration.trees.image_registry import Published
from integration.trees.tree import CONTENT, Tree
from nodeagent.report.views.registry import views
from nodeagent.update.ports.events import Event

Rule = Mapping[str, Any]

MINE = "/etc/mine.conf"
MINE_UNIT = "mine.service"
# Started by the boot only, and notes with what: the OS and the file that it found.
UNIT = f"""\
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'cat {MINE} {CONTENT} | tee /run/mine'
[Install]
WantedBy=multi-user.target
"""
AUTH = "/run/ostree/auth.json"
BLOCKER = "nightly-backup.service"
FAULTS = "/run/rpmostreed-standin.json"
# What has no OS in it needs no reboot.
POLICY = agent.policy(files={MINE: ["None"]}, units={MINE_UNIT: ["DaemonReload"]})
WAIT = 90.0  # seconds for an update with a reboot, on a machine that has other work
CUTS = int(os.environ.get("NODEAGENT_CUTS", "3"))  # at random times, of the power and of the agent, in one host
SEED = int(os.environ.get("NODEAGENT_CUTS_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
SLOW: Rule = {"at": "layer:2", "do": "sleep", "seconds": 4, "times": 1}  # time to look, in the middle of a pull


def config(name: str, image: Published | str | None = None, *, unit: str = UNIT, **spec: Any) -> str:
    """A config whose file says `name`, and whose unit runs if the OS and that file are there."""
    if image is not None:
        spec["osImageURL"] = image if isinstance(image, str) else image.by_digest
    return agent.machine_config(
        name, files={MINE: f"mine of {name}\n"}, units={MINE_UNIT: UnitSpec(unit, enabled=True)}, **spec
    )


def inject_faults(host: TestHost, *rules: Rule) -> None:
    """Replace the faults that the stand-in injects. A boot removes them."""
    host.write(FAULTS, json.dumps({"rules": list(rules)}))


def wait_status(
    host: TestHost, what: str, such: Callable[[dict[str, Any]], object], timeout: float = WAIT
) -> dict[str, Any]:
    """The first status seen for which `such` is true."""

    def there() -> dict[str, Any] | None:
        now = agent.status(host)
        return now if such(now) else None

    return host.wait_for(there, what, timeout, every=0.02)


def wait_step(host: TestHost, text: str, timeout: float = WAIT) -> dict[str, Any]:
    """Wait until the step of the status has `text` in its name."""
    return wait_status(host, f"step {text!r}", lambda now: now["step"] and text in now["step"]["name"], timeout)


def wait_current(host: TestHost, name: str) -> None:
    """Wait until `name` is in force, whatever is the desired config."""
    wait_status(host, f"{name} is in force", lambda now: (now["phase"], now["current"]) == ("Idle", name))


def apply_again(host: TestHost, config: str) -> None:
    """Apply a config again after it failed, as an operator does, and wait until the agent tries it."""
    agent.apply(host, config)
    wait_status(host, "it is tried again", lambda now: now["phase"] != "Degraded")


def wait_reason(host: TestHost, reason: str) -> dict[str, Any]:
    """The first status with this reason word."""
    return wait_status(host, reason, lambda now: now["reason"] == reason)


def wait_degraded(host: TestHost, reason: str) -> dict[str, Any]:
    """The first status in Degraded with this reason word. The phase before it, Releasing, has the reason too."""
    return wait_status(host, reason, lambda now: (now["phase"], now["reason"]) == ("Degraded", reason))


def wait_retried(host: TestHost, reason: str, timeout: float = WAIT) -> None:
    """Wait until the status shows why a staging is tried again."""
    why = lambda now: (now["phase"], now["reason"]) == ("Staging", reason)  # noqa: E731
    now = wait_status(host, f"it is tried again because of {reason}", why, timeout)
    assert now["message"].startswith("trying again in "), now


def wait_said(host: TestHost, text: str, timeout: float = WAIT) -> None:
    """Wait until the agent has logged `text`, in any boot. `wait_logged` is for events, whose reasons are stable."""
    host.wait_for(lambda: text in said(host), f"the agent logs {text!r}", timeout, every=0.2)


def said(host: TestHost) -> str:
    """Return the messages of the agent in the journal, of all boots."""
    return "\n".join(entry["MESSAGE"] for entry in host.journal(agent.UNIT))


def logged(host: TestHost, kind: type[Event], reason: str = "") -> Sequence[Mapping[str, Any]]:
    """Return the journal entries of one kind of event, of all boots; with ``reason``, those of this reason."""
    entries = host.journal(agent.UNIT, match={"MESSAGE_ID": views()[kind].id})
    return [entry for entry in entries if reason in ("", entry.get("NODEAGENT_REASON"))]


def wait_logged(host: TestHost, kind: type[Event], reason: str = "", *, count: int = 1, timeout: float = WAIT) -> None:
    """Wait until the journal has ``count`` entries of this kind and reason."""
    host.wait_for(
        lambda: len(logged(host, kind, reason)) >= count, f"{count} times {kind.__name__} {reason}", timeout, every=0.2
    )


def shown(status: Mapping[str, Any]) -> list[str]:
    """The deployments of a status in boot order, as "41.2.0 booted" or "41.3.0 staged locked"."""
    words = ("booted", "staged", "locked")
    return [" ".join([d["version"], *(word for word in words if d[word])]) for d in status["deployments"]]


def ran(host: Host) -> list[str]:
    """Return what each boot since MINE_UNIT found, as "file content | content of the OS"."""
    said = {boot.boot_id: [e["MESSAGE"] for e in host.journal(MINE_UNIT, boot=boot.boot_id)] for boot in host.boots}
    found = [[line for line in lines if line.startswith(("mine of", "content of"))] for lines in said.values()]
    return [" | ".join(lines) for lines in found if lines]


def block_reboot(host: TestHost) -> None:
    """Keep the agent right before its reboot, with everything written, until `unblock_reboot`."""
    inhibit = ["systemd-inhibit", "--what=shutdown", "--mode=block", "--who=backup", "--why=nightly"]
    host.run(["systemd-run", f"--unit={BLOCKER}", *inhibit, "sleep", "infinity"])
    host.wait_for(lambda: "backup" in host.run(["systemd-inhibit", "--list", "--no-legend"]).stdout, "it blocks")


def delay_shutdowns(host: TestHost) -> None:
    """Let each shutdown wait for some seconds (``InhibitDelayMaxSec=``), in all boots: time to look at its begin."""
    inhibit = "systemd-inhibit --what=shutdown --mode=delay --who=test --why=test sleep infinity"
    unit = f"[Unit]\nBefore=nodeagent.service\n[Service]\nExecStart={inhibit}\n[Install]\nWantedBy=multi-user.target\n"
    host.write("/etc/systemd/system/delay.service", unit)
    host.run(["systemctl", "enable", "--now", "delay.service"])
    host.wait_for(lambda: "delay" in host.run(["systemd-inhibit", "--list", "--no-legend"]).stdout, "it delays")


def unblock_reboot(host: TestHost) -> None:
    host.run(["systemctl", "stop", BLOCKER])


def wait_blocked(host: TestHost) -> None:
    wait_reason(host, "RebootBlocked")


def wait_updated(host: TestHost, name: str, tree: Tree, timeout: float = WAIT) -> None:
    """Wait until the update to `name`, which has an OS, is verified. Check that it is complete and left nothing."""
    agent.wait_done(host, name, timeout)
    check(host, name, tree)


def check(host: TestHost, name: str, tree: Tree) -> None:
    """`tree` and the file of `name` are what runs, what services were started with, and what boots next.

    For a host that has come to rest after a reboot, forward or back.
    """
    assert host.read_text(MINE) == f"mine of {name}\n"
    assert host.read_text("/run/mine") == f"mine of {name}\n{tree.files[CONTENT]}"
    # An agent that has just started has yet to ask for them.
    deployments = shown(wait_status(host, "the deployments are known", lambda now: now["deployments"]))
    assert deployments[0] == f"{tree.version} booted", deployments
    assert len(deployments) <= 2, deployments
    assert deployments_of(host)[0].booted
    assert not host.exists(STAGED)
    assert not host.exists(AUTH)
    assert agent.status(host)["lease"] is None
