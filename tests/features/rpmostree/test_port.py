# SPDX-License-Identifier: Apache-2.0
"""The promises of the port, kept by rpm-ostreed."""

from __future__ import annotations

import pytest
from dbus_next import Variant

from nodeagent.features.rpmostree.adapter import RpmOstree
from tests.features.rpmostree.fake_rpmostree import B, FakeRpmOstree
from tests.features.rpmostree.fake_transaction import FakeTransaction
from tests.host.fake_systemd import FakeSystemd
from tests.host.ostree.deployments_suite import DeploymentsSuite, Subject

pytestmark = pytest.mark.usefixtures("no_leaked_fds")


class OnRpmOstree(Subject):
    def __init__(self, os: RpmOstree, daemon: FakeRpmOstree, manager: FakeSystemd) -> None:
        self.port, self.use, self.root = os, os.use, daemon.root
        self._daemon = daemon
        self._manager = manager
        manager.job_script = self._unlock
        daemon.write_entries()

    async def _unlock(self, job: int, unit: str) -> None:
        # Of all commands, ``ostree admin lock-finalization --unlock`` alone is run here.
        self.unlocks_other()
        await self._manager.finish(job, unit, "done")

    def is_active(self, unit: str) -> None:
        self._manager.units[unit] = {"ActiveState": Variant("s", "active")}

    def stages_other(self, *, locked: bool) -> str:
        return str(self._daemon.stage(checksum=B, locked=locked)["id"])

    def unlocks_other(self) -> None:
        self._daemon.write_state(self._daemon.first, locked=False)

    def fail(self, text: str, *, after: bool = False) -> None:
        async def work(transaction: FakeTransaction) -> None:
            message = self._daemon._effects[transaction]
            if after:
                self._daemon.effect(transaction)
            await transaction.finish(message.member == "Cleanup", text)

        self._daemon.script = work

    def do_nothing(self) -> None:
        self._daemon.script = lambda transaction: transaction.finish()

    def images_have(self, *paths: str) -> None:
        async def work(transaction: FakeTransaction) -> None:
            await self._daemon.work(transaction)
            first = self._daemon.first
            tree = self.root / f"ostree/deploy/{first['osname']}/deploy/{first['checksum']}.{first['serial']}"
            for path in (tree / each for each in paths if first["staged"]):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()

        self._daemon.script = work

    def hang(self) -> None:
        async def until_cancelled(transaction: FakeTransaction) -> None:
            await transaction.cancelled.wait()
            await transaction.finish(False, "Operation was cancelled")

        self._daemon.script = until_cancelled

    def work(self) -> None:
        self._daemon.script = self._daemon.work

    @property
    def begun(self) -> bool:
        return bool(self._daemon.transactions) and self._daemon.transactions[0].started.is_set()

    @property
    def was_ended(self) -> bool:
        return self._daemon.transactions[0].cancelled.is_set()

    @property
    def changes(self) -> int:
        return len(self._daemon.requests)


@pytest.fixture
def subject(os: RpmOstree, daemon: FakeRpmOstree, manager: FakeSystemd) -> Subject:
    (daemon.root / "sysroot").mkdir()
    return OnRpmOstree(os, daemon, manager)


class TestPort(DeploymentsSuite):
    pass
