# SPDX-License-Identifier: Apache-2.0
"""The links that enable the units of the host in memory.

Those of a config are as on a disk. A ``FakeUnit`` of the OS has one more, which is its word ``file``: enabled or not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from nodeagent.core.config.file_tree import DEV_NULL, FileTreeEntry, RegularFile, SymbolicLink
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import template_of
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.enablement.links import belongs, is_link_name, last_part
from nodeagent.core.plan.enablement.presets import PRESETS
from nodeagent.core.plan.enablement.unit_files import EnablementFacts

if TYPE_CHECKING:
    from tests.world.world import World

OS_UNITS = "/usr/lib/systemd/system"
WANTS = "multi-user.target.wants"
OF_THE_OS = b"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"


def _of_the_os(world: World) -> dict[str, str]:
    """Return the units of the OS by their link."""
    return {f"{WANTS}/{name}": name for name, unit in world.units.items() if not unit.brought}


def is_link(path: str, node: FileTreeEntry | None) -> bool:
    link = path.removeprefix(f"{UNIT_DIR}/")
    masks = isinstance(node, SymbolicLink) and node.target == DEV_NULL
    return link != path and is_link_name(link) and ("/" in link or (isinstance(node, SymbolicLink) and not masks))


def all_links(world: World) -> dict[str, str]:
    ours = {
        link: f"{OS_UNITS}/{name}" for link, name in _of_the_os(world).items() if world.units[name].file == "enabled"
    }
    return {**world.links, **ours}


def link_at(world: World, path: str) -> SymbolicLink | None:
    target = all_links(world).get(path.removeprefix(f"{UNIT_DIR}/"))
    return SymbolicLink(target) if target is not None and path.startswith(f"{UNIT_DIR}/") else None


def put_link(world: World, path: str, target: str | None) -> None:
    link = path.removeprefix(f"{UNIT_DIR}/")
    if (name := _of_the_os(world).get(link)) is not None:
        world.units[name].file = "enabled" if target is not None else "disabled"
    elif target is not None:
        world.links[link] = target
    else:
        world.links.pop(link, None)


def is_enabled(world: World, unit: str) -> bool:
    return any(belongs(path, target, unit) for path, target in all_links(world).items())


def file_state(world: World, unit: str) -> str:
    """Return what ``systemctl is-enabled`` prints for a unit that a config brought."""
    if is_enabled(world, unit):
        return "enabled"
    file = world.disk.get(f"{UNIT_DIR}/{unit}") or world.disk.get(f"{UNIT_DIR}/{template_of(unit)}")
    content = file.content if isinstance(file, RegularFile) else b""
    if any(key in content for key in (b"WantedBy=", b"RequiredBy=", b"Alias=")):
        return "disabled"
    return "indirect" if b"Also=" in content else "static"


class FakeUnitFiles:
    def __init__(self, world: World) -> None:
        self.world = world

    async def shipped(self, deployment: Deployment, units: Collection[str]) -> Mapping[str, FileTreeEntry]:
        self.world.meet("unit files of another OS")
        texts = self.world.units_of_os.get(deployment.digest, {})
        return {f"{OS_UNITS}/{name}": RegularFile(text) for name, text in texts.items() if name in units}

    async def facts(
        self, units: Collection[str], changes: Mapping[str, FileTreeEntry | None] | None = None
    ) -> EnablementFacts:
        self.world.tick()
        world = self.world
        files = {path: node for path, node in world.disk.items() if path.startswith((f"{UNIT_DIR}/", f"{OS_UNITS}/"))}
        for name in _of_the_os(world).values():
            # A static or generated unit has no [Install] section.
            if world.units[name].load == "loaded" and world.units[name].file in ("enabled", "disabled"):
                files[f"{OS_UNITS}/{name}"] = RegularFile(world.unit_texts.get(name, OF_THE_OS))
        for path, target in world.links.items():
            if "/" not in path and last_part(target) != path:
                files[f"{UNIT_DIR}/{path}"] = SymbolicLink(target)
        after = {**world.disk, **(changes or {})}
        presets = [after[path] for path in sorted(after) if path.rpartition("/")[0] in PRESETS]
        texts = [node.content.decode() for node in presets if isinstance(node, RegularFile)]
        return EnablementFacts(all_links(world), files, texts)
