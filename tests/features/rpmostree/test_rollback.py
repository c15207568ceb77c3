# SPDX-License-Identifier: Apache-2.0
"""A rollback boots unattended: where GRUB would ask for a password, the old tree gets a new entry."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from dbus_next import Variant

from nodeagent.errors import Refused, Terminal
from nodeagent.features.rpmostree.adapter import RpmOstree
from nodeagent.host.ostree.redeployment import has_superusers
from tests.features.rpmostree.fake_rpmostree import A, C, FakeRpmOstree, deployment
from tests.host.fake_systemd import FakeSystemd

pytestmark = [
    pytest.mark.usefixtures("no_leaked_fds"),
    pytest.mark.finding(
        "OS: GRUB passwords",
        "Where the entry that would become the default asks for a GRUB password, the old tree is deployed once more.",
    ),
]

RESTRICTED = 'grub_users ""\n'
USER_CFG = 'set superusers="root"\npassword_pbkdf2 root grub.pbkdf2.sha512.10000.5B\n'
# As grub2-mkconfig writes it for every host.
GRUB_CFG = """
### BEGIN /etc/grub.d/01_users ###
if [ -f ${prefix}/user.cfg ]; then
  source ${prefix}/user.cfg
  if [ -n "${GRUB2_PASSWORD}" ]; then
    set superusers="root"
    export superusers
    password_pbkdf2 root ${GRUB2_PASSWORD}
  fi
fi
"""


@pytest.fixture
def daemon(daemon: FakeRpmOstree) -> FakeRpmOstree:
    """The deployment behind the booted one has an entry with a list of users."""
    old = deployment(C, container_image_reference="old", entry=RESTRICTED, options='console=a console=b x="$1 2"')
    daemon.deployments = [deployment(booted=True), old]
    return daemon


def superusers(daemon: FakeRpmOstree) -> None:
    path = daemon.root / "boot/grub2/user.cfg"
    path.parent.mkdir(parents=True)
    path.write_text(USER_CFG)


def deploys(manager: FakeSystemd, daemon: FakeRpmOstree, **more: str) -> None:
    """Deploy as ``ostree admin deploy`` does."""

    async def run(job: int, unit: str) -> None:
        made = daemon.deployments[1] | {"serial": 1, "id": f"fedora-coreos-{C}.1"}
        made.pop("entry")
        daemon.deployments.insert(0, made | more)
        await manager.finish(job, unit, "done")

    manager.job_script = run


async def test_an_old_entry_that_asks_gets_a_new_one(
    os: RpmOstree, manager: FakeSystemd, daemon: FakeRpmOstree
) -> None:
    await asyncio.to_thread(superusers, daemon)
    deploys(manager, daemon)
    assert await os.rollback() == f"fedora-coreos-{C}.1"
    ((_, command),) = manager.transient
    assert command == [
        *("/usr/bin/ostree", "admin", "deploy", "--os=fedora-coreos"),
        f"--origin-file=/ostree/deploy/fedora-coreos/deploy/{C}.0.origin",
        *("--karg-none", "--karg-append=console=a", "--karg-append=console=b", '--karg-append=x="$$1 2"', C),
    ]
    assert not daemon.requests, "the order is not swapped"
    assert await os.rollback() == f"fedora-coreos-{C}.1", "a second time it is done already"
    assert len(manager.transient) == 1


async def test_a_swapped_boot_order_is_corrected(os: RpmOstree, manager: FakeSystemd, daemon: FakeRpmOstree) -> None:
    await asyncio.to_thread(superusers, daemon)
    daemon.deployments.reverse()

    async def run(job: int, unit: str) -> None:
        made = daemon.deployments[0] | {"serial": 1, "id": f"fedora-coreos-{C}.1"}
        made.pop("entry")
        daemon.deployments[0] = made
        await manager.finish(job, unit, "done")

    manager.job_script = run
    assert await os.rollback() == f"fedora-coreos-{C}.1"


@pytest.mark.parametrize("asks", ["no superusers", "no list of users"])
async def test_otherwise_the_order_is_swapped(
    os: RpmOstree, manager: FakeSystemd, daemon: FakeRpmOstree, asks: str
) -> None:
    if asks == "no list of users":
        await asyncio.to_thread(superusers, daemon)
        daemon.deployments[1].pop("entry")
    assert await os.rollback() == f"fedora-coreos-{C}.0"
    assert [member for member, _ in daemon.requests] == ["Rollback"]
    assert not manager.transient


@pytest.mark.parametrize("result", ["failed", "done"])
async def test_where_it_cannot_be_deployed_nothing_is_swapped(
    os: RpmOstree, manager: FakeSystemd, daemon: FakeRpmOstree, result: str
) -> None:
    """A host at an emergency prompt is worse; the new deployment at least runs."""
    await asyncio.to_thread(superusers, daemon)
    manager.properties["ExecMainStatus"] = Variant("i", 1 if result == "failed" else 0)
    manager.job_script = lambda job, unit: manager.finish(job, unit, result)
    with pytest.raises(Terminal) as caught:
        await os.rollback()
    assert caught.value.reason == "RollbackAsksPassword"
    assert not daemon.requests
    assert daemon.first["booted"]


async def test_a_new_entry_that_asks_as_well(os: RpmOstree, manager: FakeSystemd, daemon: FakeRpmOstree) -> None:
    await asyncio.to_thread(superusers, daemon)
    deploys(manager, daemon, entry=RESTRICTED)
    with pytest.raises(Terminal) as caught:
        await os.rollback()
    assert caught.value.reason == "RollbackAsksPassword"


async def test_what_is_staged_stays(os: RpmOstree, manager: FakeSystemd, daemon: FakeRpmOstree) -> None:
    await asyncio.to_thread(superusers, daemon)
    daemon.stage(checksum=A)
    with pytest.raises(Refused):
        await os.rollback()
    assert not manager.transient


@pytest.mark.parametrize(
    ("files", "asks"),
    [
        ({}, False),
        ({"grub2/grub.cfg": GRUB_CFG}, False),
        ({"grub2/grub.cfg": GRUB_CFG, "grub2/user.cfg": "GRUB2_PASSWORD=grub.pbkdf2.sha512.1\n"}, True),
        ({"grub2/grub.cfg": GRUB_CFG, "grub2/user.cfg": ""}, False),
        ({"grub2/grub.cfg": GRUB_CFG + 'set superusers="admin"\n'}, True),
        ({"grub2/user.cfg": USER_CFG}, True),
        ({"grub/custom.cfg": "set superusers=root\n"}, True),
        ({"grub2/user.cfg": '# set superusers="root"\nset superusers=""\n'}, False),
        ({"efi/EFI/redhat/user.cfg": "GRUB2_PASSWORD=grub.pbkdf2.sha512.1\n"}, True),
        ({"efi/EFI/redhat/grub.cfg": 'set superusers="admin"\npassword_pbkdf2 admin grub.pbkdf2.sha512.1\n'}, True),
        ({"efi/EFI/redhat/grub.cfg": GRUB_CFG, "efi/EFI/BOOT/grub.cfg": "configfile $prefix/grub.cfg\n"}, False),
        ({"grub2/user.cfg/": ""}, True),  # a directory: it cannot be read
    ],
)
def test_superusers(tmp_path: Path, files: dict[str, str], asks: bool) -> None:
    for name, text in files.items():
        path = tmp_path / "boot" / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(text)
    assert has_superusers(tmp_path) is asks
