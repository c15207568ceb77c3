# SPDX-License-Identifier: Apache-2.0
"""The host in memory (``tests.world``) and a host that boots from ostree do the same for one script of events.

Ring 1 tests updates of the OS on the host in memory, which repeats the rules of libostree for staging, finalization
and the merge of /etc. After each event the deployments and the files of both hosts are compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pytest

from integration.hosts.ostree.conftest import OstreeHostMaker
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees.ostree_repo import Commit, OstreeRepo
from integration.trees.tree import Tree
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.image import parse_image
from nodeagent.core.plan.deployment import OsTarget, booted, staged
from tests.world import FakeDeployments, World
from tests.world.os_host import A_DIGEST, B_DIGEST, FIRST, IMAGE

DIGESTS = {"a": A_DIGEST, "b": B_DIGEST}
NAMES = {digest: name for name, digest in DIGESTS.items()}
# The names say what becomes of a default from A to B, and what the admin does with it.
CHANGED, CHANGED_EDITED, CHANGED_REMOVED, EQUAL, DROPPED, DROPPED_EDITED, ADDED, ADDED_BEFORE, OWN = PATHS = tuple(
    f"/etc/conformance-{name}"
    for name in (
        *("changed", "changed-edited", "changed-removed", "equal", "dropped", "dropped-edited"),
        *("added", "added-before", "own"),
    )
)
SHIPPED = {
    "a": dict.fromkeys((CHANGED, CHANGED_EDITED, CHANGED_REMOVED, EQUAL, DROPPED, DROPPED_EDITED), "a")
    | {EQUAL: "equal"},
    "b": dict.fromkeys((CHANGED, CHANGED_EDITED, CHANGED_REMOVED, EQUAL, ADDED, ADDED_BEFORE), "b") | {EQUAL: "equal"},
}
TREES = {"a": Tree("41.11.0", SHIPPED["a"]), "b": Tree("41.12.0", SHIPPED["b"])}


@dataclass(frozen=True)
class State:
    """``deployments`` in boot order, such as "b staged locked"; ``files`` without those that are absent."""

    deployments: list[str]
    files: dict[str, str]


def described(name: str, **marks: bool) -> str:
    return " ".join([name, *(mark for mark, on in marks.items() if on)])


class Subject(Protocol):
    """A host to which events happen."""

    def write(self, path: str, text: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def stage(self, name: str) -> None: ...
    def unlock(self) -> None: ...
    def discard(self) -> None: ...
    def roll_back(self) -> None: ...
    def reboot(self) -> None: ...
    def power_cut(self) -> None: ...
    def state(self) -> State: ...


class InMemory:
    def __init__(self) -> None:
        self._world = World(deployments=[FIRST])
        self._os = FakeDeployments(self._world)
        for name, files in SHIPPED.items():
            self._world.shipped[DIGESTS[name]] = {path: RegularFile(text.encode()) for path, text in files.items()}
        self._world.disk |= self._world.shipped[A_DIGEST]

    def write(self, path: str, text: str) -> None:
        self._world.disk[path] = RegularFile(text.encode())

    def remove(self, path: str) -> None:
        del self._world.disk[path]

    def stage(self, name: str) -> None:
        there = staged(self._world.deployments)
        replaced = there.id if there is not None else ""
        target = OsTarget(parse_image(IMAGE[name]))
        staging = self._os.stage(target, credentials=None, replace=replaced, on_progress=lambda _: None)
        asyncio.run(staging)

    def unlock(self) -> None:
        asyncio.run(self._os.unlock(self._world.deployments[0].id))

    def discard(self) -> None:
        asyncio.run(self._os.discard())

    def roll_back(self) -> None:
        asyncio.run(self._os.rollback())

    def reboot(self) -> None:
        self._world.shut_down()

    def power_cut(self) -> None:
        self._world.power_cut()

    def state(self) -> State:
        world = self._world
        assert booted(world.deployments) is not None
        deployments = [
            described(NAMES[d.digest], booted=d.booted, staged=d.staged, locked=bool(d.locked))
            for d in world.deployments
        ]
        files = {path: node for path in PATHS if isinstance(node := world.disk.get(path), RegularFile)}
        return State(deployments, {path: node.content.decode() for path, node in files.items()})


class OnOstree:
    def __init__(self, host: OstreeHost, commits: dict[str, Commit]) -> None:
        self._host, self._commits = host, commits
        self._names = {commit.checksum: name for name, commit in commits.items()}

    def write(self, path: str, text: str) -> None:
        self._host.write(path, text)

    def remove(self, path: str) -> None:
        self._host.run(["rm", path])

    def stage(self, name: str) -> None:
        self._host.stage(self._commits[name], "--lock-finalization")

    def unlock(self) -> None:
        self._host.run(["ostree", "admin", "lock-finalization", "--unlock"])

    def discard(self) -> None:
        self._host.run(["ostree", "admin", "undeploy", "0"])

    def roll_back(self) -> None:
        self._host.run(["ostree", "admin", "set-default", "1"])

    def reboot(self) -> None:
        with self._host.rebooting():
            self._host.run(["systemctl", "reboot"])

    def power_cut(self) -> None:
        self._host.power_cut()

    def state(self) -> State:
        deployments = [
            described(self._names[d.checksum], booted=d.booted, staged=d.staged, locked=d.locked)
            for d in self._host.deployments()
        ]
        return State(deployments, {path: self._host.read_text(path) for path in PATHS if self._host.exists(path)})


Event = tuple[str, ...]
EDITS: Sequence[Event] = (
    ("write", CHANGED_EDITED, "admin"),
    ("remove", CHANGED_REMOVED),
    ("write", DROPPED_EDITED, "admin"),
    ("write", ADDED_BEFORE, "admin"),
    ("write", OWN, "admin"),
)
SCRIPTS: dict[str, Sequence[Event]] = {
    "a staged deployment is lost": (
        *EDITS,
        ("stage", "b"),
        ("power_cut",),
        ("stage", "b"),
        ("reboot",),  # locked: nothing is finalized
        ("stage", "b"),
        ("unlock",),
        ("power_cut",),
    ),
    "the files of /etc are merged": (
        *EDITS,
        ("stage", "b"),
        ("unlock",),
        ("write", OWN, "late"),  # between staging and the shutdown
        ("reboot",),
        ("write", CHANGED, "admin in b"),
        ("roll_back",),
        ("reboot",),
        ("write", EQUAL, "admin in a"),
        ("roll_back",),
        ("reboot",),
    ),
    "a staged deployment is replaced": (
        ("stage", "b"),
        ("stage", "a"),
        ("discard",),
        ("stage", "b"),
        ("stage", "b"),
        ("unlock",),
        ("reboot",),
        ("stage", "a"),
        ("unlock",),
        ("reboot",),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_both_hosts_are_in_the_same_state_after_each_event(
    script: str, make_ostree_host: OstreeHostMaker, ostree_repo: OstreeRepo
) -> None:
    host = make_ostree_host(TREES["a"])
    host.boot()
    real: Subject = OnOstree(host, {name: ostree_repo.commit(tree) for name, tree in TREES.items()})
    fake: Subject = InMemory()
    assert fake.state() == real.state()
    for number, (event, *arguments) in enumerate(SCRIPTS[script]):
        for subject in (real, fake):
            getattr(subject, event)(*arguments)
        assert fake.state() == real.state(), f"event {number}: {event} {arguments}"
