# SPDX-License-Identifier: Apache-2.0
"""The next boot by the files of libostree, on hosts without an rpm-ostreed that works: what `bootc rollback` queues."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nodeagent.features.rpmostree.adapter import RpmOstree
from nodeagent.host.dbus.client import Bus
from nodeagent.host.ostree.boot_order import booted_deployment, other_boots_first
from nodeagent.host.systemd import Systemd
from tests.features.rpmostree.adapters import adapter
from tests.features.rpmostree.fake_rpmostree import FakeRpmOstree
from tests.host.fake_systemd import FakeSystemd
from tests.support.fixtures import PrivateBus
from tests.support.vardict import vardict

pytestmark = pytest.mark.usefixtures("no_leaked_fds")


@pytest.fixture
def os(private_bus: PrivateBus, bus: Bus, manager: FakeSystemd, model: FakeRpmOstree) -> RpmOstree:
    """As on a host of bootc: the adapter, and nothing on the bus that it calls."""
    return adapter(private_bus, Systemd(bus), model.root)


def directory(model: FakeRpmOstree, deployment: dict[str, Any]) -> Path:
    folder = model.root / f"ostree/deploy/{deployment['osname']}/deploy"
    return folder / f"{deployment['checksum']}.{deployment['serial']}"


def boot(model: FakeRpmOstree, deployment: dict[str, Any]) -> None:
    """Write the host's files after a boot of ``deployment``, with composefs."""
    for each in model.deployments:
        directory(model, each).mkdir(parents=True, exist_ok=True)
        directory(model, each).with_suffix(".0.origin").touch()
    info = directory(model, deployment).stat()
    note = {"composefs": True, "backing-root-device-inode": (info.st_dev, info.st_ino)}
    (model.root / "run/ostree-booted").write_bytes(vardict(note))
    model.write_entries()


@pytest.mark.finding(
    "OS: what a boot brings", "A rollback that bootc queued is seen on a host without an rpm-ostreed that works."
)
async def test_a_rollback_that_was_queued_without_rpm_ostree(os: RpmOstree, model: FakeRpmOstree) -> None:
    booted, previous = model.deployments
    boot(model, booted)
    assert await os.boots_of_other("") == ""
    # As bootc rollback, which swaps the two and toggles.
    model.deployments.reverse()
    model.write_entries()
    assert await os.boots_of_other("") == previous["id"]
    assert await os.boots_of_other(previous["id"]) == "", "it is the one of the agent"
    model.deployments.reverse()
    model.write_entries()
    assert await os.boots_of_other("") == ""


async def test_the_tenth_entry_is_after_the_ninth(model: FakeRpmOstree) -> None:
    """The numbers are compared, not their text."""
    booted = model.deployments[0]
    model.deployments += [
        {**booted, "id": f"{booted['id'][:-1]}{n}", "serial": n, "booted": False} for n in range(1, 9)
    ]
    boot(model, booted)
    assert len(model.deployments) == 10
    assert await asyncio.to_thread(other_boots_first, model.root) == ""


@pytest.mark.parametrize("missing", ["run/ostree-booted", "boot/loader", "ostree/deploy"])
async def test_without_the_files_nothing_is_claimed(os: RpmOstree, model: FakeRpmOstree, missing: str) -> None:
    booted = model.deployments[0]
    boot(model, booted)
    model.deployments.reverse()
    model.write_entries()
    assert await os.boots_of_other("") != ""
    (model.root / missing).rename(model.root / "away")
    assert await os.boots_of_other("") == ""


async def test_the_booted_deployment_is_the_root_directory(model: FakeRpmOstree) -> None:
    """Without composefs, / is the directory of the deployment."""
    booted = model.deployments[0]
    boot(model, booted)
    (model.root / "run/ostree-booted").write_bytes(b"")
    assert await asyncio.to_thread(booted_deployment, model.root) == ""
    directory(model, booted).rmdir()
    directory(model, booted).symlink_to(model.root)
    assert await asyncio.to_thread(booted_deployment, model.root) == booted["id"]
