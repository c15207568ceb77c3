# SPDX-License-Identifier: Apache-2.0
"""A host in memory that boots from deployments, and configs that ask for other ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile, expand
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.deployment import Deployment, booted
from nodeagent.update.stages.guard import Guard
from tests.world import FakeUnit, World
from tests.world.run import Host, config
from tests.world.unit_files import OF_THE_OS

A_DIGEST, B_DIGEST, C_DIGEST = (f"sha256:{letter * 64}" for letter in "abc")
IMAGE = {name: f"quay.example/os@{digest}" for name, digest in zip("abc", (A_DIGEST, B_DIGEST, C_DIGEST), strict=True)}

FIRST = Deployment(
    "os-aaaa.0",
    A_DIGEST,
    "os",
    version="1",
    digest=A_DIGEST,
    kernel_arguments=("root=LABEL=root", "quiet"),
    booted=True,
)

FILES = {"/etc/app/x": "1", "/etc/quiet/q": "1"}
NEW_FILES = {"/etc/app/x": "2", "/etc/app/y": "2"}


def on(image: str, name: str, files: dict[str, str] | None = None, **more: Any) -> MachineConfig:
    return config(name, FILES if files is None else files, os_image_url=IMAGE[image], **more)


OLD = on("a", "old")
NEW = on("b", "new", NEW_FILES)
KARGS = on("a", "kargs", kernel_arguments=("nosmt", "audit=1"))
MORE = on("b", "more", {**FILES, "/etc/app/y": "2"})
UNIT = UnitEntry("app.service", "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n", enabled=True)


# What makes a guard of each such host. Features run these tests once more, with theirs.
GUARDS: list[Callable[[World], Guard]] = []


def os_host(**units: FakeUnit) -> Host:
    base = {"app.service": FakeUnit(), "web.service": FakeUnit(), "trust.service": FakeUnit(type="oneshot")}
    named = {f"{name}.service": unit for name, unit in units.items()}
    world = World(units=base | named, deployments=[FIRST])
    world.shipped[A_DIGEST] = {"/etc/os": RegularFile(b"a"), "/etc/chrony": RegularFile(b"a")}
    world.shipped[B_DIGEST] = {"/etc/os": RegularFile(b"b"), "/etc/chrony": RegularFile(b"b")}
    for path, node in world.shipped[A_DIGEST].items():
        world.disk |= {path: node, f"/usr{path}": node}
    return Host(world, guards=[make(world) for make in GUARDS])


async def at_old(first: MachineConfig = OLD) -> Host:
    host = os_host()
    host.want(first)
    await host.settle()
    assert host.world.boot == 1, "a first start on what is there reboots nothing"
    host.world.done.clear()
    host.world.events.clear()
    host.world.calls = 0
    return host


def managed(world: World, *configs: MachineConfig) -> dict[str, FileTreeEntry]:
    """Return the files on the disk that these configs manage."""
    paths = {path for config in configs for path in expand(config)}
    return {path: node for path, node in world.disk.items() if path in paths}


def booted_digest(world: World) -> str:
    found = booted(world.deployments)
    assert found is not None
    return found.digest


def only_on(world: World, digest: str, name: str) -> None:
    """Make a unit that only this OS image has."""

    class OfOneImage(FakeUnit):
        @property
        def load(self) -> str:
            return "loaded" if booted_digest(world) == digest else "not-found"

        @load.setter
        def load(self, value: str) -> None: ...

    world.units[name] = OfOneImage(active="inactive", file="disabled")
    world.units_of_os.setdefault(digest, {})[name] = OF_THE_OS


def bad_on(world: World, digest: str) -> None:
    """Let app.service fail with this OS image."""

    class Picky(FakeUnit):
        @property
        def bad_until_boot(self) -> int:
            return 99 if booted_digest(world) == digest else 0

        @bad_until_boot.setter
        def bad_until_boot(self, value: int) -> None: ...

    world.units["app.service"] = Picky()
