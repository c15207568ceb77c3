"""A soft reboot that another program prepared into a locked deployment: seen without the daemon, and cleared."""

from __future__ import annotations

from pathlib import Path

import pytest
from dbus_next import Variant

from nodeagent.errors import Refused
from nodeagent.host.dbus.client import Bus
from nodeagent.host.rpmostree.adapter import RpmOstree
from nodeagent.host.rpmostree.finalization import PREPARED
from nodeagent.host.systemd import Systemd
from tests.host.fake_systemd import FakeSystemd
from tests.host.rpmostree.adapters import adapter
from tests.host.rpmostree.fake_rpmostree import FakeRpmOstree
from tests.support.fixtures import PrivateBus

pytestmark = pytest.mark.usefixtures("no_leaked_fds")
MOUNTINFO = "36 25 0:30 / /run/nextroot ro,relatime shared:1 - overlay composefs ro\n"


@pytest.fixture
def os(private_bus: PrivateBus, bus: Bus, manager: FakeSystemd, model: FakeRpmOstree) -> RpmOstree:
    return adapter(private_bus, Systemd(bus), model.root)


def prepare(model: FakeRpmOstree, *, how: str = "note") -> Path:
    path = model.root / (PREPARED if how == "note" else "/proc/self/mountinfo").lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("" if how == "note" else MOUNTINFO)
    return path


@pytest.mark.parametrize("how", ["note", "mount"])
async def test_only_a_locked_deployment_starts_unmerged(os: RpmOstree, model: FakeRpmOstree, how: str) -> None:
    assert await os.unmerged_soft_reboot() == ""
    staged = model.stage()
    assert await os.unmerged_soft_reboot() == ""
    prepare(model, how=how)
    assert await os.unmerged_soft_reboot() == staged["id"]
    model.write_state(staged, locked=False)
    assert await os.unmerged_soft_reboot() == ""
    (model.root / "run/ostree/staged-deployment").unlink()
    assert await os.unmerged_soft_reboot() == ""


async def test_it_is_cleared(os: RpmOstree, manager: FakeSystemd, model: FakeRpmOstree) -> None:
    model.stage()
    note = prepare(model)

    async def run(job: int, unit: str) -> None:
        note.unlink()
        await manager.finish(job, unit, "done")

    manager.job_script = run
    await os.reset_soft_reboot()
    ((_, command),) = manager.transient
    assert command == ["/usr/bin/ostree", "admin", "prepare-soft-reboot", "--reset"]


@pytest.mark.parametrize("result", ["failed", "done"])
async def test_it_cannot_be_cleared(os: RpmOstree, manager: FakeSystemd, model: FakeRpmOstree, result: str) -> None:
    staged = model.stage()
    prepare(model)
    manager.properties["ExecMainStatus"] = Variant("i", 1 if result == "failed" else 0)
    manager.job_script = lambda job, unit: manager.finish(job, unit, result)
    with pytest.raises(Refused) as caught:
        await os.reset_soft_reboot()
    assert caught.value.reason == "LockedSoftReboot"
    assert staged["id"] in caught.value.message
