# SPDX-License-Identifier: Apache-2.0
"""What bootc does to deployments. With a real one (NODEAGENT_BOOTC) the same holds, but for the last test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from integration.hosts.ostree.conftest import Publish
from integration.hosts.ostree.ostree_host import STAGED, OstreeHost
from integration.hosts.ostree.test_bootc_ground import LOCK, pull, stage
from integration.hosts.ostree.test_harness import reboot
from integration.trees.tree import CONTENT, A, B

FIXTURES = Path(__file__).with_name("fixtures")
REBOOT_REQUIRED = "/run/reboot-required"
# As libostree does, for which a lock of flock(1) is none.
HOLD = """\
mount -o remount,rw /sysroot
exec python3 -c '
import fcntl, pathlib, time
file = open("/ostree/lock", "w")
fcntl.lockf(file, fcntl.LOCK_EX)
pathlib.Path("/run/held").touch()
time.sleep(3600)'
"""


def bootc(host: OstreeHost, *arguments: str) -> tuple[int, str]:
    done = host.run(["bootc", *arguments], check=False)
    return done.returncode, done.stdout + done.stderr


def status(host: OstreeHost) -> Any:
    return json.loads(host.run(["bootc", "status", "--json"]).stdout)


def shape(value: Any) -> Any:
    """The keys and the types of a JSON document. An entry that is null here and there is null."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return type(value).__name__


@pytest.fixture
def staged(bootc_host: OstreeHost, publish_bootc: Publish) -> OstreeHost:
    """A host on which B is staged and locked."""
    image = publish_bootc(B)
    assert pull(bootc_host, image)[0] == 0
    stage(bootc_host, image, "--lock-finalization")
    return bootc_host


def test_the_status_has_the_recorded_shape(staged: OstreeHost, publish_bootc: Publish) -> None:
    recorded = json.loads((FIXTURES / "status-staged-locked.json").read_text())
    now = status(staged)
    # No deployment of the recorded host was the only one.
    recorded["status"]["rollback"] = None
    assert shape(now) == shape(recorded)
    assert now["spec"]["image"]["image"] == publish_bootc(B).by_digest
    entry = now["status"]["staged"]
    assert (entry["downloadOnly"], entry["image"]["version"]) == (True, B.version)
    assert entry["image"]["imageDigest"] == publish_bootc(B).digest
    assert now["status"]["booted"]["image"]["version"] == A.version


@pytest.mark.long
def test_a_queued_rollback_has_the_recorded_shape(staged: OstreeHost) -> None:
    staged.run(["ostree", "admin", "lock-finalization", "--unlock"])
    reboot(staged)
    assert bootc(staged, "rollback")[0] == 0
    now = status(staged)
    assert shape(now) == shape(json.loads((FIXTURES / "status-rollback-queued.json").read_text()))
    assert (now["spec"]["bootOrder"], now["status"]["rollbackQueued"]) == ("rollback", True)
    assert staged.exists(REBOOT_REQUIRED)
    bootc(staged, "rollback")
    assert not status(staged)["status"]["rollbackQueued"], "it toggles"
    bootc(staged, "rollback")
    reboot(staged)
    assert staged.read_text(CONTENT) == A.files[CONTENT]


@pytest.mark.long
def test_status_waits_for_the_lock(bootc_host: OstreeHost) -> None:
    bootc_host.run(["systemd-run", "--unit=holder", "--property=PrivateMounts=yes", "sh", "-c", HOLD])
    bootc_host.wait_for(lambda: bootc_host.exists("/run/held"), "the lock is held")
    assert bootc_host.run(["timeout", "3", "bootc", "status", "--json"], check=False).returncode == 124
    bootc_host.run(["systemctl", "stop", "holder.service"])
    status(bootc_host)


def test_upgrade_unlocks_a_staged_deployment(staged: OstreeHost) -> None:
    assert bootc(staged, "upgrade") == (0, "Staged deployment will now be applied on reboot\n")
    assert bootc(staged, "upgrade") == (0, "Staged update present, not changed\n")
    assert not staged.deployments()[0].locked
    reboot(staged)
    assert staged.read_text(CONTENT) == B.files[CONTENT]
    assert bootc(staged, "upgrade") == (0, "No update available.\n")


@pytest.mark.long
def test_a_rollback_drops_a_staged_deployment(staged: OstreeHost, publish_bootc: Publish) -> None:
    bootc(staged, "upgrade")
    reboot(staged)
    image = publish_bootc(A)
    pull(staged, image)
    stage(staged, image, "--karg-append=again=1")
    assert bootc(staged, "rollback")[0] == 0
    assert not staged.exists(STAGED)
    assert status(staged)["status"]["rollbackQueued"]


@pytest.mark.long
def test_loader_entries_lose_the_lock(staged: OstreeHost) -> None:
    before = staged.deployments()[0]
    arguments = ("loader-entries", "set-options-for-source", "--source=tuned", "--options=mitigations=auto")
    assert bootc(staged, *arguments)[0] == 0
    after = staged.deployments()[0]
    assert (after.checksum, after.serial, after.staged, after.locked) == (
        before.checksum,
        before.serial + 1,
        True,
        False,
    )
    reboot(staged)
    assert "mitigations=auto" in staged.cmdline


def test_switch_that_fails_after_staging(bootc_host: OstreeHost, publish_bootc: Publish) -> None:
    host, b = bootc_host, publish_bootc(B)
    host.write("/run/bootc-standin/fail-cleanup", "")
    assert bootc(host, "switch", b.by_digest)[0] == 1
    (deployment, _) = host.deployments()
    assert (deployment.staged, deployment.locked, host.exists(REBOOT_REQUIRED)) == (True, False, False)
    host.run(["rm", "/run/bootc-standin/fail-cleanup"])
    assert bootc(host, "switch", b.by_digest) == (0, "Image specification is unchanged.\n")
    host.run(["ostree", "admin", "undeploy", "0"])
    host.write(LOCK, "")
    assert bootc(host, "switch", b.by_digest)[0] == 0
    assert host.exists(REBOOT_REQUIRED)
    assert not status(host)["status"]["staged"]["downloadOnly"], "bootc does not know this lock"
    reboot(host)
    assert host.read_text(CONTENT) == A.files[CONTENT]
