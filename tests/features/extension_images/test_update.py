# SPDX-License-Identifier: Apache-2.0
"""Updates with images on a host in memory: fetched before the lease, merged by systemd-sysext, and reverted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeagent.agent.plan_answer import plan_answer
from nodeagent.core.config.fetched import kept_at
from nodeagent.core.config.file_tree import RegularFile, SymbolicLink
from nodeagent.core.config.machineconfig import LinkEntry, MachineConfig, UnitEntry
from nodeagent.core.plan.deployment import OsTarget, target_to_dict
from nodeagent.core.plan.policy import Entry, restart
from nodeagent.errors import Refused, Unreachable
from nodeagent.features.extension_images.cache import ImageCache
from nodeagent.features.extension_images.decide import DOMAIN, UNIT, Image
from nodeagent.features.extension_images.guard import ImageGuard
from nodeagent.features.extension_images.planned import MOST_READ
from nodeagent.features.extension_images.reasons import ExtensionImageReason as Reason
from nodeagent.features.extension_images.settings import ExtensionImageSettings
from nodeagent.update.next.preflight import Preflight
from nodeagent.update.ports.events import UpdateWaiting
from nodeagent.update.run import Run, Update
from nodeagent.update.stages.guard import Guard
from nodeagent.update.states import Phase
from tests.world import FakeStore, FakeUnit, FakeUnits, World, kill_points
from tests.world.run import POLICY, Host, config, kinds

pytestmark = pytest.mark.looptime

PATH = "/var/lib/extensions/app.raw"
ENTRIES = {key: Entry(key, actions) for key, actions in DOMAIN.files.items() if isinstance(actions, tuple)}
UNITS = {key: Entry(key, actions) for key, actions in DOMAIN.units.items() if isinstance(actions, tuple)}
RULED = replace(POLICY, files={**POLICY.files, **ENTRIES}, units={**POLICY.units, **UNITS})
# An admin names the unit that uses the image.
MERGE = ENTRIES["/var/lib/extensions"].actions
NAMED = replace(RULED, files={**RULED.files, PATH: Entry(PATH, (*MERGE, restart("app.service")))})


def digest(number: int) -> str:
    return f"sha256-{number:064x}"


def with_image(name: str, number: int | None, path: str = PATH) -> MachineConfig:
    links = {path: LinkEntry(path, kept_at(digest(number)), source="https://images/app.raw")} if number else {}
    return replace(config(name, {"/etc/quiet/q": "1"}), links=links)


@dataclass
class ListedCache(ImageCache):
    """Keeps empty files. ``errors`` are those of the next attempts."""

    root: Path
    errors: list[Exception] = field(default_factory=list)
    fetched: list[tuple[str, bool]] = field(default_factory=list)
    world: World | None = None

    def __post_init__(self) -> None:
        ImageCache.__init__(self, ExtensionImageSettings(), str(self.root))

    async def fetch(self, image: Image) -> None:
        assert self.world is not None
        if await self.size(image) is not None:
            return
        if self.errors:
            raise self.errors.pop(0)
        self.world.tick()
        file = self._at(kept_at(image.digest))
        await asyncio.to_thread(file.parent.mkdir, parents=True, exist_ok=True)
        await asyncio.to_thread(file.touch)
        self.fetched.append((image.digest, self.world.holder is not None))
        self.world.tick()


@dataclass
class ImageHost(Host):
    cache: ListedCache | None = None
    ignored: set[str] = field(default_factory=set)
    # Why images do not fit this host, by their names, and each comparison of one: the file, and whether the lease was
    # held.
    unfit: dict[str, str] = field(default_factory=dict)
    compared: list[tuple[str, str, bool]] = field(default_factory=list)
    # The extension-release of images, by their files, and which were read.
    releases: dict[str, dict[str, str]] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)

    def mountinfo(self) -> str:
        """Return an overlay of what systemd-sysext has read."""
        unit = self.world.units[UNIT]
        names = [path.rpartition("/")[2].removesuffix(".raw") for path in unit.read if path.endswith(".raw")]
        layers = ":".join(f"/run/systemd/sysext/extensions/{name}/usr" for name in names if name not in self.ignored)
        return f"9 1 0:9 / /usr ro - overlay sysext ro,lowerdir={layers}:/usr\n" if layers else ""

    def guard(self) -> ImageGuard:
        assert self.cache is not None
        store, units = FakeStore(self.world), FakeUnits(self.world)
        return ImageGuard(self.cache, store, units, self._load, self.mountinfo, self.why_unfit, self.release)

    async def release(self, file: str, _name: str) -> dict[str, str] | None:
        self.read.append(file)
        return self.releases.get(file)

    async def why_unfit(self, file: str, name: str) -> str:
        self.compared.append((file, name, self.world.holder is not None))
        return self.unfit.get(name, "")


@dataclass
class ClosedFor(Guard):
    """No update may begin for some turns."""

    turns: int

    async def may_begin(self, run: Run) -> None:
        if self.turns:
            self.turns -= 1
            raise Refused("closed", reason=Reason.EXTENSION_NOT_FETCHED)


class Sysext(FakeUnit):
    """Does not start without an image, as its conditions say. They are looked at when it starts."""

    world: World

    @property
    def condition(self) -> str:
        starts = self.world.done and self.world.done[-1].endswith(f"restart {UNIT}")
        there = any(path.endswith(".raw") for path in self.world.disk)
        return "" if starts and there else "ConditionDirectoryNotEmpty"

    @condition.setter
    def condition(self, value: str) -> None: ...


async def at(root: Path, first: int | None = 1, **unit: object) -> ImageHost:
    sysext = Sysext(type="oneshot", wanted_by=("sysinit.target",), **unit)  # type: ignore[arg-type]
    world = World(units={UNIT: sysext, "sysinit.target": FakeUnit(), "app.service": FakeUnit()})
    sysext.world = world
    host = ImageHost(world, policy=RULED, cache=ListedCache(root, world=world))
    host.guards = [host.guard()]
    host.want(with_image("a", first))
    await host.settle()
    assert host.phase is Phase.IDLE, host.record
    host.world.done.clear()
    host.world.calls = 0
    return host


async def to(host: ImageHost, new: MachineConfig) -> object:
    host.want(new)
    await host.settle()
    return host.world.history[-1].outcome


def link(host: ImageHost, path: str = PATH) -> str:
    node = host.world.disk.get(path)
    return node.target if isinstance(node, SymbolicLink) else ""


async def test_the_first_image_starts_the_unit_and_the_next_reloads_it(tmp_path: Path) -> None:
    host = await at(tmp_path, None, active="inactive")
    assert await to(host, with_image("b", 1)) == "done"
    assert (host.actions(), link(host)) == ([f"restart {UNIT}"], kept_at(digest(1)))
    host.world.done.clear()
    assert await to(host, with_image("c", 2)) == "done"
    assert (host.actions(), link(host)) == ([f"reload {UNIT}"], kept_at(digest(2)))
    host.world.done.clear()
    assert await to(host, with_image("d", None)) == "done"
    assert (host.actions(), link(host)) == ([f"reload {UNIT}"], "")
    assert host.cache is not None
    assert [held for _, held in host.cache.fetched] == [False, False], "they are fetched before the lease"


async def test_a_config_that_enables_the_unit_starts_it_before_what_uses_the_image(tmp_path: Path) -> None:
    host = await at(tmp_path, None, active="inactive", file="disabled")
    host.world.units[UNIT].wanted_by = ()
    host.world.unit_texts[UNIT] = b"[Install]\nWantedBy=sysinit.target\n"
    host.policy = NAMED
    enabled = {UNIT: UnitEntry(UNIT, enabled=True)}
    assert await to(host, replace(with_image("b", 1), units=enabled)) == "done"
    assert host.actions() == ["daemon-reload", f"restart {UNIT}", "restart app.service"]


async def test_the_policy_names_the_units_that_use_an_image(tmp_path: Path) -> None:
    host = await at(tmp_path)
    host.policy = NAMED
    assert await to(host, with_image("b", 2)) == "done"
    assert host.actions() == [f"reload {UNIT}", "restart app.service"]


async def test_an_outage_of_the_server_is_waited_for(tmp_path: Path) -> None:
    host = await at(tmp_path)
    assert host.cache is not None
    host.cache.errors = [Unreachable("away", reason=Reason.EXTENSION_UNREACHABLE)] * 5
    assert await to(host, with_image("b", 2)) == "done"
    assert kinds(host, UpdateWaiting) == [Reason.EXTENSION_UNREACHABLE]


async def test_another_content_ends_the_update_before_anything_is_disrupted(tmp_path: Path) -> None:
    host = await at(tmp_path)
    assert host.cache is not None
    host.cache.errors = [Refused("another", reason=Reason.EXTENSION_DIGEST)]
    assert await to(host, with_image("b", 2)) == "refused"
    assert (host.world.history[-1].reason, host.actions(), host.world.holder) == (Reason.EXTENSION_DIGEST, [], None)
    await host.settle()
    assert host.cache.fetched == [(digest(1), False)], "it is not tried again"


async def test_a_newer_config_ends_the_transfer(tmp_path: Path) -> None:
    host = await at(tmp_path)
    assert host.cache is not None
    host.cache.errors = [Unreachable("away", reason=Reason.EXTENSION_UNREACHABLE)] * 1000
    host.want(with_image("b", 2))
    life = asyncio.ensure_future(host.settle())
    while not kinds(host, UpdateWaiting):
        await asyncio.sleep(1)
    host.want(with_image("c", 1))
    await life
    assert (host.phase, link(host)) == (Phase.IDLE, kept_at(digest(1)))


async def test_an_image_for_another_os_ends_the_update_before_anything_is_disrupted(tmp_path: Path) -> None:
    host = await at(tmp_path)
    host.unfit["app"] = "ID is 'fedora', and this host has 'debian'"
    assert await to(host, with_image("b", 2)) == "refused"
    entry = host.world.history[-1]
    assert (entry.reason, host.actions(), host.world.holder) == (Reason.EXTENSION_UNFIT, [], None)
    assert "app (sha256-000000000000): in its extension-release, ID is 'fedora'" in host.record.message
    assert link(host) == kept_at(digest(1))
    assert host.compared[-1] == (kept_at(digest(2)), "app", False)
    host.unfit.clear()
    assert await to(host, with_image("c", 3)) == "done"


async def test_an_image_is_compared_by_the_name_of_its_link(tmp_path: Path) -> None:
    host = await at(tmp_path, None)
    stored = with_image("b", 1, "/opt/extensions/app/app-v1.raw")
    named = LinkEntry("/etc/extensions/app.raw", "/opt/extensions/app/app-v1.raw")
    assert await to(host, replace(stored, links={**stored.links, named.path: named})) == "done"
    assert host.compared == [(kept_at(digest(1)), "app", False)]


async def test_an_image_is_compared_once_while_an_update_waits(tmp_path: Path) -> None:
    host = await at(tmp_path)
    host.compared.clear()
    closed = ClosedFor(5)
    host.guards = [*host.guards, closed]
    assert await to(host, with_image("b", 2)) == "done"
    assert closed.turns == 0
    assert host.compared == [(kept_at(digest(2)), "app", False)]


@pytest.mark.parametrize("case", ["no merge", "another OS"])
async def test_an_image_that_this_os_does_not_merge_is_not_compared(tmp_path: Path, case: str) -> None:
    host = await at(tmp_path)
    host.unfit["app"] = "ID is 'fedora', and this host has 'debian'"
    host.compared.clear()
    new = with_image("b", 2)
    if case == "no merge":
        host.world.units[UNIT].file = "disabled"
    update = await prepared(host, new)
    if case == "another OS":
        target = target_to_dict(OsTarget(kernel_arguments=("quiet",)))
        update.record = replace(update.record, os=replace(update.record.os, target=target))
    await host.guard().fetch(cast(Run, SimpleNamespace(update=update)))
    assert host.compared == []


async def test_an_image_that_is_not_merged_is_reverted(tmp_path: Path) -> None:
    host = await at(tmp_path, None)
    host.ignored = {"app"}
    assert await to(host, with_image("b", 1)) == "reverted"
    assert (host.world.history[-1].reason, link(host)) == (Reason.EXTENSION_NOT_MERGED, "")


async def test_a_unit_that_fails_with_the_new_image_brings_the_previous_one_back(tmp_path: Path) -> None:
    host = await at(tmp_path)
    host.policy, host.limits = NAMED, replace(host.limits, may_reboot=False)
    host.world.units["app.service"].fail_restarts = 1
    assert await to(host, with_image("b", 2)) == "reverted"
    assert link(host) == kept_at(digest(1))
    assert [action for action in host.actions() if UNIT in action] == [f"reload {UNIT}"] * 2
    assert host.world.units[UNIT].read[PATH] == SymbolicLink(kept_at(digest(1)))


async def test_what_another_put_there_comes_back(tmp_path: Path) -> None:
    host = await at(tmp_path, None)
    file = tmp_path / PATH.lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_bytes(b"of an admin")
    host.world.disk[PATH] = RegularFile(b"of an admin")
    assert await to(host, with_image("b", 1)) == "done"
    assert await to(host, with_image("c", None)) == "done"
    target = link(host)
    assert (tmp_path / target.lstrip("/")).read_bytes() == b"of an admin"
    await host.guard().prune()
    assert (tmp_path / target.lstrip("/")).exists()


async def test_a_host_that_fetches_nothing_refuses_the_config(tmp_path: Path) -> None:
    host = await at(tmp_path)
    assert host.cache is not None
    host.cache.settings = ExtensionImageSettings(max_bytes=0)
    host.want(with_image("b", 2))
    await host.settle()
    assert (host.phase, host.record.reason, link(host)) == (Phase.DEGRADED, "Unreconcilable", kept_at(digest(1)))
    host.guards = []
    host.want(with_image("c", 3))
    await host.settle()
    assert host.record.reason == "Unreconcilable", "without the feature, too"


async def prepared(host: ImageHost, new: MachineConfig) -> Update:
    preflight = Preflight(host.ports(), host.limits, (), host._policy, host.on_drift, host._view)
    known = [await host._load(host.world.current)]
    return await preflight.prepare(await host._load(host.add(new)), known, dirty=False, first=False)


async def plan_of(host: ImageHost, new: MachineConfig) -> dict[str, Any]:
    return await plan_answer(host.ports(), await prepared(host, new), diff=False, private=False)


async def notes(host: ImageHost, new: MachineConfig) -> list[str]:
    found: list[str] = (await plan_of(host, new))["notes"]
    return found


def side(number: int, size: int | None = None, version: str = "") -> dict[str, Any]:
    return {"digest": digest(number), "bytes": size, "version": version}


async def test_the_json_of_a_plan_compares_the_images(tmp_path: Path) -> None:
    host = await at(tmp_path)
    host.policy = NAMED
    host.releases[kept_at(digest(1))] = {"ID": "_any", "SYSEXT_VERSION_ID": "1.33"}
    units = [UNIT, "app.service"]
    image = {"name": "app", "path": PATH, "change": "modified", "before": side(1, 0, "1.33"), "after": side(2)}
    image |= {"source": "https://images/app.raw", "reloads_manager": None, "names_units": [], "units": units}
    assert (await plan_of(host, with_image("b", 2)))["images"] == [image]
    assert "images" not in await plan_of(host, with_image("c", 1))
    leaves = {**image, "change": "removed", "after": None, "source": ""}
    assert (await plan_of(host, with_image("d", None)))["images"] == [leaves]
    host = await at(tmp_path, None)
    new = {**image, "change": "added", "before": None, "after": side(3), "units": [UNIT]}
    assert (await plan_of(host, with_image("e", 3)))["images"] == [new]


async def test_an_image_in_another_place_replaces_the_one_with_its_name(tmp_path: Path) -> None:
    host = await at(tmp_path)
    stored = with_image("b", 2, "/opt/extensions/app/app-2.raw")
    named = LinkEntry(PATH, "/opt/extensions/app/app-2.raw")
    (image,) = (await plan_of(host, replace(stored, links={**stored.links, PATH: named})))["images"]
    assert (image["name"], image["change"]) == ("app", "modified")
    assert (image["before"]["digest"], image["after"]["digest"]) == (digest(1), digest(2))


async def test_a_plan_reads_an_image_once(tmp_path: Path) -> None:
    host = await at(tmp_path)
    for number in (1, 2):
        host.releases[kept_at(digest(number))] = {"IMAGE_VERSION": f"v{number}", "EXTENSION_RELOAD_MANAGER": "1"}
    assert await to(host, with_image("b", 2)) == "done"
    for _ in range(3):
        (image,) = (await plan_of(host, with_image("a", 1)))["images"]
        assert (image["before"], image["after"]) == (side(2, 0, "v2"), side(1, 0, "v1"))
        assert image["reloads_manager"] is True
    assert sorted(host.read) == [kept_at(digest(1)), kept_at(digest(2))]


async def test_a_plan_reads_no_more_than_some_images(tmp_path: Path) -> None:
    host = await at(tmp_path)
    assert host.cache is not None
    links = {f"/var/lib/extensions/{number}.raw": number for number in range(10, 30)}
    for number in links.values():
        (tmp_path / kept_at(digest(number)).lstrip("/")).touch()
    config = with_image("b", 1)
    entries = {path: LinkEntry(path, kept_at(digest(number)), source="https://i/x") for path, number in links.items()}
    answer = await plan_answer(
        host.ports(),
        await prepared(host, replace(config, links={**config.links, **entries})),
        diff=False,
        private=False,
    )
    assert len(answer["images"]) == 20
    assert len(host.read) == 2 * MOST_READ, "for the JSON and for the notes, because none could be read"


async def test_a_plan_names_the_image_and_where_it_comes_from(tmp_path: Path) -> None:
    host = await at(tmp_path)
    host.releases[kept_at(digest(1))] = {"SYSEXT_IMAGE_VERSION": "1.33"}
    found = await notes(host, with_image("b", 2))
    assert found[0] == (
        "image app (sha256-000000000000): fetched from https://images/app.raw before the update waits for its turn; it "
        "replaces sha256-000000000000, version 1.33, 0 bytes"
    )
    assert "the policy names those that restart" in found[1]
    (leaves,) = await notes(host, with_image("d", None))
    assert leaves == "image app (sha256-000000000000, version 1.33, 0 bytes): it leaves"
    assert await to(host, with_image("b", 2)) == "done"
    assert await to(host, with_image("a", 1)) == "done"
    host.releases[kept_at(digest(2))] = {"EXTENSION_RESTART_UNITS": "a.service  b.service a.service ../c"}
    found = await notes(host, with_image("b", 2))
    assert "(sha256-000000000000, 0 bytes): on this host already; it replaces " in found[0]
    assert "; it makes systemd read its units again (EXTENSION_RELOAD_MANAGER)" in found[0]
    assert found[0].endswith("; systemd 261 and later restart what it names, a.service, b.service")
    host.world.units[UNIT].file = "disabled"
    assert f"warning: {UNIT} is not enabled, so no boot merges app" in await notes(host, with_image("b", 2))


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point(tmp_path: Path, power: bool) -> None:
    whole = await at(tmp_path / "whole")
    whole.policy = NAMED
    assert await to(whole, with_image("b", 2)) == "done"
    assert whole.world.calls > 10
    for fuse in kill_points(whole.world.calls, case=power):
        host = await at(tmp_path / str(fuse))
        host.policy = NAMED
        host.want(with_image("b", 2))
        await host.kill_at(fuse, power=power)
        await host.settle()
        assert host.phase is Phase.IDLE, f"fuse {fuse}: {host.record}"
        assert link(host) == kept_at(digest(2))
        assert host.world.units[UNIT].read[PATH] == SymbolicLink(kept_at(digest(2))), f"fuse {fuse}"
        assert (host.world.holder, host.actions().count("reboot")) == (None, 0)


async def test_images_of_both_configs_stay(tmp_path: Path) -> None:
    host = await at(tmp_path)
    for number in range(2, 8):
        assert await to(host, with_image(f"c{number}", number)) == "done"
    await host.guard().prune()
    names = {path.name for path in (tmp_path / "var/lib/nodeagent-fetched").iterdir()}
    assert {f"{digest(6)}.raw", f"{digest(7)}.raw"} <= names
    assert len(names) == 4
