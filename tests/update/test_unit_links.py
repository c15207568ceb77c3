# SPDX-License-Identifier: Apache-2.0
"""Updates and the links that enable units: after each end, also one by a kill, the links are those of one side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry
from nodeagent.core.plan.deployment import booted
from nodeagent.core.plan.policy import DAEMON_RELOAD, Entry
from nodeagent.update.next.unit_checks import MAX_WARNINGS
from nodeagent.update.ports.events import Warned
from nodeagent.update.stages.compare import mismatches
from nodeagent.update.states import Phase
from nodeagent.update.steps.unit_links import NOTE
from tests.world import FakeUnit, World, kill_points
from tests.world.os_host import B_DIGEST, NEW_FILES, at_old
from tests.world.os_host import on as on_image
from tests.world.run import POLICY, Host, config
from tests.world.unit_files import all_links

pytestmark = pytest.mark.looptime

ETC = "/etc/systemd/system"
LIB = "/usr/lib/systemd/system"
M = "multi-user.target.wants"
NAMES = (
    "echo@.service echo@foo.service echo@bar.service z.service z.socket bus.service b.service f.service setup.service"
)
RELOADS = {name: Entry(name, (DAEMON_RELOAD,)) for name in NAMES.split()}
FOREIGN = {
    "default.target": f"{LIB}/multi-user.target",
    "bus.service": f"{ETC}/a.service",
    f"{M}/a.service": f"{ETC}/a.service",
    f"{M}/echo@admin.service": f"{ETC}/echo@.service",
    "basic.target.wants/z.service": "../z.service",
    "sockets.target.wants/z.socket": "../z.socket",
}


def text(*lines: str, wanted: str = "multi-user.target") -> str:
    return "\n".join(["[Service]", "ExecStart=/bin/true", "[Install]", f"WantedBy={wanted}", *lines, ""])


def on(name: str, contents: str | None = None, **more: object) -> UnitEntry:
    return UnitEntry(name, contents, enabled=True, **more)  # type: ignore[arg-type]


def named(name: str, *units: UnitEntry, app: str = "1", **files: str) -> MachineConfig:
    return config(name, {"/etc/app/x": app} | {f"{ETC}/{key}.service": value for key, value in files.items()}, units)


BUSY = (
    UnitEntry("echo@.service", text("# 2", wanted="x.target")),
    on("echo@foo.service"),
    UnitEntry("z.service", enabled=False),
    on("b.service", text("Alias=bus.service default.service")),
)


async def started(*units: UnitEntry) -> Host:
    """A host with links of its own that runs a config with these units."""
    world = World(units={"app.service": FakeUnit()}, links=dict(FOREIGN))
    world.units |= {name: FakeUnit(active="inactive", file="disabled") for name in ("z.service", "z.socket")}
    world.unit_texts = {
        "z.service": text("Also=z.socket").encode(),
        "z.socket": text(wanted="sockets.target").encode(),
    }
    host = Host(world, policy=replace(POLICY, units={**POLICY.units, **RELOADS}))
    await applied(host, named("first"))
    await applied(host, named("old", *units))
    world.calls = 0
    return host


async def applied(host: Host, wanted: MachineConfig) -> dict[str, str]:
    host.want(wanted)
    await host.settle()
    assert host.phase is Phase.IDLE, host.record
    assert host.world.current == host.wanted
    assert await mismatches(host.ports(), wanted) == {}
    return all_links(host.world)


def of_app() -> dict[str, str]:
    return {f"{M}/app.service": f"{LIB}/app.service"}


@pytest.mark.finding(
    "units: changed templates", "A changed template keeps the links of its instances, also those of an admin."
)
@pytest.mark.finding(
    "units: instances of a changed template",
    "Instances that a config enables stay enabled when their template changes.",
)
async def test_a_changed_template_keeps_its_instances() -> None:
    instances = (on("echo@foo.service"), on("echo@bar.service"))
    host = await started(UnitEntry("echo@.service", text()), *instances)
    before = all_links(host.world)
    assert {f"{M}/echo@{name}.service" for name in ("foo", "bar", "admin")} <= before.keys()
    assert await applied(host, named("new", UnitEntry("echo@.service", text("# 2")), *instances)) == before
    assert "reboot" not in host.actions()
    assert await applied(host, named("none")) == FOREIGN | of_app()


@pytest.mark.finding(
    "units: links of other units", "A unit that leaves takes no link of another unit with it, whatever Also= names."
)
@pytest.mark.finding(
    "units: other units in Also=", "Each entry has the enablement that it demands, whatever Also= of another names."
)
async def test_entries_that_also_connects_hold_at_the_same_time() -> None:
    host = await started()
    links = await applied(host, named("new", UnitEntry("z.service", enabled=False), on("z.socket")))
    socket = "sockets.target.wants/z.socket"
    rest = {path: to for path, to in FOREIGN.items() if "z.service" not in path}
    assert links == rest | of_app()
    assert links[socket] == FOREIGN[socket], "a link that has the effect already stays as it is"
    assert await applied(host, named("none")) == FOREIGN | of_app()


@pytest.mark.finding("units: links of an admin", "A reverted update leaves the links of the host as they were.")
@pytest.mark.finding("units: other units in Also=", "A revert leaves each link as it was, whatever Also= names.")
async def test_a_revert_gives_all_links_back() -> None:
    host = await started(UnitEntry("echo@.service", text()), on("echo@foo.service"))
    before, claims = all_links(host.world), host.world.notes[NOTE]
    host.world.units["app.service"] = _Picky(host.world)
    host.want(named("bad", *BUSY, app="2"))
    await host.settle()
    assert host.record.reason == "Reverted"
    assert all_links(host.world) == before
    assert host.world.notes[NOTE] == claims
    assert await mismatches(host.ports(), host.configs[host.world.current]) == {}


@pytest.mark.finding(
    "units: links of an admin", "A link that another program changes during a revert is corrected once, or reported."
)
@pytest.mark.parametrize("stuck", [False, True], ids=["corrected", "changed again"])
async def test_links_are_compared_at_the_end_of_a_revert(stuck: bool) -> None:
    host = await started(UnitEntry("echo@.service", text()), on("echo@foo.service"))
    before = all_links(host.world)
    host.world.links = _Changed(host.world.links, stuck=stuck)
    host.world.units["app.service"] = _Meddler(host.world)
    host.want(named("bad", *BUSY, app="2"))
    await host.settle()
    entry = host.world.history[-1]
    note = f"{ETC}/bus.service is not as before the update: differs"
    warned = [event.message for event in host.world.events if isinstance(event, Warned)]
    assert (entry.outcome, note in entry.message, note in warned) == ("reverted", stuck, stuck)
    assert all_links(host.world) == before | ({"bus.service": "mine.service"} if stuck else {})


@pytest.mark.finding(
    "units: links of an admin", "Links from before come back when the entry leaves that replaced them."
)
async def test_replaced_links_come_back_when_the_entry_leaves() -> None:
    host = await started()
    my = on("f.service", "[Unit]\n[Install]\nAlias=default.service\n")
    links = await applied(host, named("new", on("b.service", text("Alias=bus.service")), my))
    assert links["bus.service"] == f"{ETC}/b.service"
    assert await applied(host, named("none")) == FOREIGN | of_app()


@pytest.mark.finding(
    "units: drift of links", "Links follow the [Install] section of a unit in storage.files and of a drop-in."
)
@pytest.mark.finding(
    "units: install sections", "Links follow an [Install] section that is not in the contents of the entry."
)
async def test_links_follow_an_install_section_elsewhere() -> None:
    host = await started()
    for target in ("multi-user.target", "basic.target"):
        dropin = {"10.conf": f"[Install]\nWantedBy={target}\n"}
        units = (on("f.service"), on("b.service", "[Service]\nExecStart=/bin/true\n", dropins=dropin))
        links = await applied(host, named(target, *units, f=text(wanted=target)))
        assert {path: to for path, to in links.items() if path not in FOREIGN | of_app()} == {
            f"{target}.wants/{name}.service": f"{ETC}/{name}.service" for name in "fb"
        }
    assert await applied(host, named("none")) == FOREIGN | of_app()


@pytest.mark.finding("units: links of an admin", "An alias that cannot be made is a warning, and no difference.")
async def test_an_alias_that_is_taken_is_a_warning() -> None:
    host = await started()
    taken = UnitEntry("b2.service", text(), enabled=False), UnitEntry("b3.service", mask=True)
    links = await applied(host, named("new", on("b.service", text("Alias=b2.service b3.service")), *taken))
    assert not {"b2.service", "b3.service"} & links.keys()
    message = host.world.history[-1].message
    for name, what in (("b2.service", "a unit file"), ("b3.service", "a mask")):
        assert f"warning: unit:b.service Alias={name} has no effect: {ETC}/{name} is {what}" in message


@pytest.mark.finding("units: enabled without a unit", "A unit that is enabled without effect is a warning.")
@pytest.mark.parametrize(
    ("contents", "warning"),
    [
        ("[Service]\nExecStart=/bin/true\n", "has nothing in [Install], so it is not enabled: it starts if another"),
        (
            text(wanted="mutli-user.target"),
            "is started by mutli-user.target, which exists neither on this host nor in the config",
        ),
        (text(), ""),
        (text(wanted="b.service"), ""),
        ("[Service]\nExecStart=/bin/true\n[Install]\nAlso=z.socket\n", ""),
    ],
)
async def test_an_install_section_without_effect_is_a_warning(contents: str, warning: str) -> None:
    host = await started()
    await applied(host, named("new", on("f.service", contents), on("b.service", text())))
    message = host.world.history[-1].message
    assert warning in message
    assert ("warning: unit:f.service" in message) is bool(warning)
    await applied(host, named("newer", on("f.service", contents), on("b.service", text()), app="2"))
    assert "warning" not in host.world.history[-1].message, "an entry that does not change is no news"


@pytest.mark.parametrize("more", [0, 1])
async def test_warnings_have_a_limit(more: int) -> None:
    host = await started()
    without = [on(f"u{number}.service", "[Service]\nExecStart=/bin/true\n") for number in range(MAX_WARNINGS + more)]
    await applied(host, named("new", *without))
    message = host.world.history[-1].message
    assert message.count("has nothing in [Install]") == MAX_WARNINGS
    assert ("more units are without effect" in message) is bool(more)
    assert not more or "warning: 1 more units are without effect" in message


async def test_a_unit_whose_only_link_is_an_alias_that_is_taken_does_not_differ() -> None:
    host = await started()
    only = on("f.service", "[Service]\nExecStart=/bin/true\n[Install]\nAlias=b.service\n")
    await applied(host, named("new", only, UnitEntry("b.service", text(), enabled=False)))
    assert "Alias=b.service has no effect" in host.world.history[-1].message


@pytest.mark.finding("units: presets", "The presets of the same config decide about the units that it brings.")
@pytest.mark.parametrize("verb", ["enable", "disable"])
async def test_the_presets_of_the_same_config_decide(verb: str) -> None:
    host = await started()
    other = "disable" if verb == "enable" else "enable"
    host.world.disk["/usr/lib/systemd/system-preset/90-os.preset"] = RegularFile(f"{other} *\n".encode())
    preset = FileEntry(path := "/etc/systemd/system-preset/10-own.preset", f"{verb} f.service\n".encode())
    host.policy.files[path] = Entry(path, (DAEMON_RELOAD,))  # type: ignore[index]
    units = named("new", UnitEntry("f.service", text()))
    links = await applied(host, replace(units, files={**units.files, path: preset}))
    assert (f"{M}/f.service" in links) is (verb == "enable")


@pytest.mark.finding(
    "units: links of an admin", "A unit may leave for another one that has its name as an alias, and come back."
)
@pytest.mark.parametrize("bad", [False, True])
async def test_a_unit_becomes_an_alias_of_another_one(bad: bool) -> None:
    host = await started(on("b.service", text()))
    before = all_links(host.world)
    host.world.units["app.service"] = _Picky(host.world)
    host.want(named("new", on("f.service", text("Alias=b.service")), app="2" if bad else "1"))
    await host.settle()
    mine = {"b.service": f"{ETC}/f.service", f"{M}/f.service": f"{ETC}/f.service"}
    assert host.record.reason == ("Reverted" if bad else ""), host.record
    assert all_links(host.world) == (before if bad else FOREIGN | of_app() | mine)
    assert (f"{ETC}/b.service" in host.world.disk) is bad
    if not bad:
        assert await applied(host, named("back", on("b.service", text()))) == before
        assert await applied(host, named("none")) == FOREIGN | of_app()


@pytest.mark.finding("units: drift of links", "A link that an entry demands and that is missing is drift.")
async def test_a_missing_link_is_drift_although_the_unit_counts_as_enabled() -> None:
    unit = on("b.service", text("Alias=b2.service"))
    host = await started(unit)
    del host.world.links["b2.service"]
    found = await mismatches(host.ports(), named("old", unit))
    assert found == {"unit:b.service": "lacks b2.service"}
    host.world.links["x.target.wants/b.service"] = "../b.service"
    host.world.links["b2.service"] = "b.service"
    assert await mismatches(host.ports(), named("old", unit)) == {}, "links of an admin beside it are none"


@pytest.mark.finding("units: failed units that were taken away", "No unit that an update took away stays failed.")
async def test_a_unit_that_failed_and_is_gone_leaves_no_ghost() -> None:
    host = await started(on("setup.service", text()))
    host.world.units["setup.service"] = FakeUnit(active="failed", brought=True)
    await applied(host, named("none"))
    assert host.actions()[-1] == "daemon-reload"
    assert host.world.units["setup.service"].active == "inactive"


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
@pytest.mark.parametrize("bad", [False, True], ids=["done", "reverted"])
async def test_killed_at_every_point(power: bool, bad: bool) -> None:
    """Whatever a kill leaves half-done, the links end as those of the new config, or as they were."""

    async def prepared() -> Host:
        host = await started(UnitEntry("echo@.service", text()), on("echo@foo.service"))
        host.want(named("bad" if bad else "new", *BUSY, app="2"))
        host.world.units["app.service"].bad_until_boot = 0
        if bad:
            host.world.units["app.service"] = _Picky(host.world)
        return host

    whole = await prepared()
    before = (all_links(whole.world), whole.world.notes[NOTE])
    await whole.settle()
    assert whole.record.reason == ("Reverted" if bad else ""), whole.record
    links = all_links(whole.world), whole.world.notes[NOTE]
    assert links == before if bad else links[0]["bus.service"] == f"{ETC}/b.service"
    for fuse in kill_points(whole.world.calls, case=power + bad):
        host = await prepared()
        await host.kill_at(fuse, power=power)
        await host.settle()
        assert (all_links(host.world), host.world.notes[NOTE]) == links, f"a kill at call {fuse}"


class _Picky(FakeUnit):
    """Does not start with the second version of its file."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    @property
    def bad_until_boot(self) -> int:
        node = self.world.disk.get("/etc/app/x") if hasattr(self, "world") else None
        return 99 if b"2" in getattr(node, "content", b"") else 0

    @bad_until_boot.setter
    def bad_until_boot(self, value: int) -> None: ...


class _Meddler(_Picky):
    """Changes a link whenever it starts, which it does in a revert only."""

    @property
    def invocation(self) -> int:
        return 1

    @invocation.setter
    def invocation(self, value: int) -> None:
        if isinstance(getattr(self, "world", None), World) and isinstance(self.world.links, _Changed):
            self.world.links.meddled()


class _Changed(dict[str, str]):
    """Links of which another program changes one, for good if it is ``stuck``."""

    def __init__(self, links: dict[str, str], *, stuck: bool) -> None:
        super().__init__(links)
        self.stuck, self.held = stuck, False

    def meddled(self) -> None:
        self["bus.service"] = "mine.service"
        self.held = self.stuck

    def __setitem__(self, link: str, target: str) -> None:
        if not (self.held and link == "bus.service"):
            super().__setitem__(link, target)


class _OfTheOs(dict[str, bytes]):
    """The unit of the second OS has an alias more."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def get(self, name: str, default: Any = None) -> Any:
        new = booted(self.host.world.deployments)
        return text("Alias=w.service").encode() if new is not None and new.digest == B_DIGEST else default


@pytest.mark.finding("units: drift of links", "Links follow the [Install] section of a new OS without another reboot.")
async def test_links_follow_the_install_section_of_a_new_os() -> None:
    web = UnitEntry("web.service", enabled=True)
    host = await at_old(on_image("a", "old", units=[web]))
    host.world.unit_texts = _OfTheOs(host)
    host.want(new := on_image("b", "new", NEW_FILES, units=[web]))
    await host.settle()
    assert (host.phase, host.actions().count("reboot"), host.world.links) == (
        Phase.IDLE,
        1,
        {"w.service": f"{LIB}/web.service"},
    )
    assert await mismatches(host.ports(), new) == {}
    host.want(on_image("b", "none", NEW_FILES))
    await host.settle()
    assert host.world.links == {}
