# SPDX-License-Identifier: Apache-2.0
"""The promises of the port, kept by libostree's commands."""

from __future__ import annotations

import pytest
from dbus_next import Variant

from nodeagent.features.bootc.adapter import Bootc
from nodeagent.features.bootc.units import ADMIN, PULL
from tests.features.bootc.fake_ostree import FakeOstree
from tests.features.bootc.test_host import with_files
from tests.host.ostree.deployments_suite import DeploymentsSuite, Subject
from tests.host.ostree.fake_sysroot import OSNAME, B, FakeDeployment, reference

pytestmark = pytest.mark.usefixtures("no_leaked_fds")


class OnLibostree(Subject):
    def __init__(self, os: Bootc, ostree: FakeOstree) -> None:
        self.port, self.use, self.root = os, os.use, ostree.sysroot.root
        self._ostree = ostree

    def is_active(self, unit: str) -> None:
        self._ostree.systemd.units[unit] = {"ActiveState": Variant("s", "active")}

    def stages_other(self, *, locked: bool) -> str:
        host = self._ostree.sysroot
        host.staged, host.locked = FakeDeployment(B, 0, reference("1")), locked
        host.write()
        return host.staged.id

    def unlocks_other(self) -> None:
        self._ostree.sysroot.locked = False
        self._ostree.sysroot.write()

    def fail(self, text: str, *, after: bool = False) -> None:
        self._ostree.fails, self._ostree.after = {ADMIN if after else PULL: f"error: {text}\n"}, after

    def do_nothing(self) -> None:
        self._ostree.idle = True

    def images_have(self, *paths: str) -> None:
        host = self._ostree.sysroot

        def write() -> None:
            if host.staged is not None:
                with_files(host.root / f"ostree/deploy/{OSNAME}/deploy" / host.staged.name, *paths)

        self._ostree.before_end = write

    def hang(self) -> None:
        self._ostree.hang = PULL

    def work(self) -> None:
        self._ostree.fails, self._ostree.after = {}, False

    @property
    def begun(self) -> bool:
        return bool(self._ostree.systemd.transient)

    @property
    def was_ended(self) -> bool:
        return self._ostree.commands[-1] == f"stop {PULL}"

    @property
    def changes(self) -> int:
        return sum(1 for each in self._ostree.commands if each.startswith(("deploy", "undeploy", "set-default")))


@pytest.fixture
def subject(os: Bootc, ostree: FakeOstree) -> Subject:
    return OnLibostree(os, ostree)


class TestPort(DeploymentsSuite):
    pass
