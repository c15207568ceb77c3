# SPDX-License-Identifier: Apache-2.0
"""Whether rpm-ostree serves this host, as the check of an installation sees it, and whether it is busy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from dbus_next import Variant

from nodeagent.core.config.image import ContainerImage, parse_image
from nodeagent.core.plan.deployment import OsTarget
from nodeagent.features.rpmostree.adapter import RpmOstree
from nodeagent.features.rpmostree.client import works_for_another
from nodeagent.features.rpmostree.door import DOOR
from nodeagent.features.rpmostree.host import is_ours, read_os_service
from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd import Systemd
from nodeagent.reasons import hint
from tests.features.rpmostree.adapters import IMAGE
from tests.features.rpmostree.fake_rpmostree import FakeRpmOstree
from tests.host.fake_systemd import FakeSystemd
from tests.support.fake_peer import FakePeer
from tests.support.fixtures import PrivateBus


@pytest.mark.finding(
    "OS: fields in the self-check", "The self-check and an update refuse OS fields for the same reason."
)
async def test_the_back_end_of_the_os(bus: Bus, private_bus: PrivateBus, tmp_path: Path) -> None:
    systemd = FakeSystemd()
    async with await systemd.start(private_bus.address):
        assert await read_os_service(bus, tmp_path) is None
        (tmp_path / "run").mkdir()
        (tmp_path / "run/ostree-booted").touch()
        service = await read_os_service(bus, tmp_path)
        assert service is not None
        assert (service.program, service.unit, service.why) == ("rpm-ostree", "rpm-ostreed.service", "")
        systemd.properties["LoadState"] = Variant("s", "masked")
        service = await read_os_service(bus, tmp_path)
        assert service is not None
        assert ("is masked" in service.why, "unmask" in service.remedy) == (True, True)
        systemd.properties["LoadState"] = Variant("s", "not-found")
        assert await refused(bus, tmp_path) == "NoDeployments"


@pytest.mark.parametrize(("load", "chosen", "ours"), [
    ("loaded", True, True), ("masked", True, True), ("not-found", True, False), ("not-found", False, True),
])  # fmt: skip
async def test_a_host_whose_image_has_no_rpm_ostree_any_more(
    bus: Bus, private_bus: PrivateBus, tmp_path: Path, load: str, chosen: bool, ours: bool
) -> None:
    systemd = FakeSystemd()
    systemd.properties["LoadState"] = Variant("s", load)
    async with await systemd.start(private_bus.address):
        assert not await is_ours(Systemd(bus), tmp_path, chosen=chosen)
        (tmp_path / "run").mkdir()
        (tmp_path / "run/ostree-booted").touch()
        assert await is_ours(Systemd(bus), tmp_path, chosen=chosen) == ours


def test_an_image_that_it_serves(tmp_path: Path) -> None:
    assert DOOR.serves_tree is not None
    assert not DOOR.serves_tree(tmp_path)
    unit = tmp_path / "usr/lib/systemd/system/rpm-ostreed.service"
    unit.parent.mkdir(parents=True)
    unit.symlink_to("/usr/lib/rpm-ostree/rpm-ostreed.service")
    assert DOOR.serves_tree(tmp_path)


async def refused(bus: Bus, root: Path) -> str:
    """Return the reason for which no field is served, after a check of its hint."""
    service = await read_os_service(bus, root)
    assert service is not None
    reason = service.why.rpartition("(")[2].rstrip(")")
    assert service.remedy == hint(reason)
    return reason


class Daemon(FakePeer):
    def __init__(self, transaction: str) -> None:
        super().__init__("org.projectatomic.rpmostree1")
        self.on("Get", lambda m: ("v", (Variant("s", transaction),)))


@pytest.mark.parametrize("transaction", ["", "/org/projectatomic/rpmostree1/fedora_coreos"])
async def test_a_daemon_with_a_transaction_is_busy(private_bus: PrivateBus, transaction: str) -> None:
    async with Daemon(transaction) as daemon:
        await daemon.start(private_bus.address)
        busy = await works_for_another(partial(Bus, private_bus.address, connect_for=2, patience=20))
    assert busy == bool(transaction)


async def test_one_that_does_not_answer_may_be_busy(private_bus: PrivateBus) -> None:
    assert await works_for_another(partial(Bus, private_bus.address, connect_for=2, patience=20))


async def test_the_units_of_a_staging(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    assert os.staging_unit.name == "rpm-ostreed.service"
    assert os.staging_unit.is_busy is not None
    assert not await os.staging_unit.is_busy()


async def test_packages_are_fetched_before_a_staging(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    extensions = parse_image(f"quay.io/example/extensions@sha256:{'e' * 64}")
    assert isinstance(extensions, ContainerImage)
    assert await os.preparation(IMAGE) is None
    preparation = await os.preparation(replace(IMAGE, packages=frozenset({"kata"}), extensions_image=extensions))
    assert preparation is not None
    assert preparation.unit.name == "nodeagent-extensions.service"
    assert preparation.unit.is_busy is None, "its files are no objects of the repository"
    arguments = OsTarget(kernel_arguments=("nosmt",), extensions_image=extensions)
    assert await os.preparation(arguments) is None, "the packages remain as they are"


async def test_less_space_is_enough_after_a_reload(os: RpmOstree) -> None:
    os.use(min_free=7)
    assert os._guards.space.min_free == 7
