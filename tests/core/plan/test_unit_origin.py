# SPDX-License-Identifier: Apache-2.0
"""Where a unit comes from, and which entries can be carried out."""

from __future__ import annotations

import pytest

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry
from nodeagent.core.plan import unit_origin
from nodeagent.core.plan.unit_abilities import UnitAbilities
from nodeagent.core.plan.unit_entries import UnitOnHost, judge, mentioned
from nodeagent.core.plan.unit_origin import Brought, Origin, names_no_instance, origin_of, unit_of_dropin

SERVICE = "[Service]\nExecStart=/bin/true\n"


def config(files: dict[str, str] | None = None, *units: UnitEntry) -> MachineConfig:
    found = {path: FileEntry(path, text.encode()) for path, text in (files or {}).items()}
    return MachineConfig("c", files=found, units={unit.name: unit for unit in units})


def on_host(load: str = "not-found", file: str = "", name: str = "x.service") -> UnitOnHost:
    return UnitOnHost(load, file, UnitAbilities(name))


EMPTY = config()
ENABLED = UnitEntry("x.service", enabled=True)


@pytest.mark.finding("units: generators", "The units of a Quadlet are known by the name of its file.")
@pytest.mark.parametrize(
    ("path", "text", "unit"),
    [
        ("/etc/containers/systemd/web.container", "", "web.service"),
        ("/etc/containers/systemd/sub/web.container", "", "web.service"),
        ("/etc/containers/systemd/web.kube", "", "web.service"),
        ("/etc/containers/systemd/web.volume", "", "web-volume.service"),
        ("/etc/containers/systemd/web.network", "", "web-network.service"),
        ("/etc/containers/systemd/web.pod", "", "web-pod.service"),
        ("/etc/containers/systemd/web.build", "", "web-build.service"),
        ("/etc/containers/systemd/web.image", "", "web-image.service"),
        ("/etc/containers/systemd/web@.container", "", "web@1.service"),
        ("/etc/containers/systemd/web.container", "[Container]\nServiceName=site\n", "site.service"),
        ("/etc/fstab", "", "var-data.mount"),
        ("/etc/crypttab", "", "systemd-cryptsetup@data.service"),
        ("/etc/systemd/zram-generator.conf", "", "systemd-zram-setup@zram0.service"),
        ("/etc/init.d/old", "", "old.service"),
        ("/etc/systemd/system-generators/own", "", "anything.path"),
    ],
)
def test_a_generator_makes_units_of_files_of_the_config(path: str, text: str, unit: str) -> None:
    brought = Brought(config({path: text}))
    assert brought.generator_of(unit) == path
    assert brought.has_generated
    assert origin_of(unit, Brought(EMPTY), brought, load="not-found", file="", other_os=False) is Origin.GENERATOR


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/etc/containers/systemd/web.container", "wep.service"),
        ("/etc/containers/systemd/web.volume", "web.service"),
        ("/etc/containers/systemd/README", "README.service"),
        ("/etc/containers/systemd/users/web.container", "web.service"),
        ("/etc/containers/systemd/web.container.d/10.conf", "web.service"),
        ("/etc/fstab", "web.service"),
        ("/etc/init.d/old", "old.socket"),
        ("/etc/web.container", "web.service"),
    ],
)
def test_other_units_come_from_nowhere(path: str, unit: str) -> None:
    brought = Brought(config({path: ""}))
    assert origin_of(unit, Brought(EMPTY), brought, load="not-found", file="", other_os=False) is Origin.NOWHERE
    assert origin_of(unit, Brought(EMPTY), brought, load="not-found", file="", other_os=True) is Origin.NEXT_OS


@pytest.mark.parametrize(
    ("load", "file", "origin"),
    [
        ("loaded", "enabled", Origin.HOST),
        ("masked", "masked", Origin.HOST),
        ("loaded", "generated", Origin.GENERATOR),
        ("loaded", "transient", Origin.GENERATOR),
    ],
)
def test_a_unit_of_this_host(load: str, file: str, origin: Origin) -> None:
    assert origin_of("x.service", Brought(EMPTY), Brought(EMPTY), load=load, file=file, other_os=True) is origin


def test_a_quadlet_takes_the_place_of_a_unit_that_leaves() -> None:
    old = Brought(config(None, UnitEntry("web.service", SERVICE)))
    new = Brought(config({"/etc/containers/systemd/web.container": ""}))
    assert origin_of("web.service", old, new, load="loaded", file="enabled", other_os=False) is Origin.GENERATOR


@pytest.mark.parametrize(
    "files",
    [
        {"/etc/systemd/system/w@.service": SERVICE},
        {"/usr/local/lib/systemd/system/w@.service": SERVICE},
        {"/etc/systemd/system/w@1.service": SERVICE},
    ],
)
def test_a_config_brings_units_as_files(files: dict[str, str]) -> None:
    assert Brought(config(files)).has("w@1.service")
    assert mentioned(config(files, UnitEntry("w@1.service", enabled=True))) == frozenset()


def test_the_texts_of_a_unit_come_in_the_order_of_systemd() -> None:
    found = config(
        {"/etc/systemd/system/w@.service.d/20.conf": "3", "/etc/systemd/system/w@1.service.d/10.conf": "2"},
        UnitEntry("w@.service", "1"),
    )
    assert Brought(found).texts_of("w@1.service") == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/etc/systemd/system/a.service.d/x.conf", "a.service"),
        ("/etc/systemd/system/a.service.d/x.txt", ""),
        ("/etc/systemd/system/service.d/x.conf", ""),
        ("/etc/systemd/system/foo-.service.d/x.conf", ""),
        ("/etc/systemd/system/a.service", ""),
        ("/etc/other/a.service.d/x.conf", ""),
        ("core", ""),
    ],
)
def test_the_unit_of_a_drop_in(path: str, unit: str) -> None:
    assert unit_of_dropin(path) == unit


def test_an_empty_value_resets_the_list_of_install() -> None:
    assert names_no_instance("w@.service", ["[Install]\nWantedBy=a.target\n"])
    assert not names_no_instance("w@.service", ["[Install]\nWantedBy=a.target\n", "[Install]\nWantedBy=\n"])


@pytest.mark.finding(
    "users: units that exist nowhere", "A change of an entry without a unit takes no action, whatever it sets."
)
@pytest.mark.parametrize("entry", [UnitEntry("x.service", enabled=True), UnitEntry("x.service", enabled=False)])
def test_entries_without_a_unit_are_idle(entry: UnitEntry) -> None:
    for old, new in ((EMPTY, config(None, entry)), (config(None, entry), EMPTY)):
        found = judge(old, new, {"x.service": on_host()})
        assert found.idle == {"x.service": "there is no unit x.service"}
        assert found.untouched == {"x.service"}
        assert list(found.missing) == (["unit:x.service"] if new is not EMPTY and entry.enabled else [])


def test_a_mask_needs_no_unit() -> None:
    assert mentioned(config(None, UnitEntry("x.service", enabled=True, mask=True))) == frozenset()


def test_drop_ins_of_a_generated_unit_take_their_actions() -> None:
    plain = UnitEntry("x.service", enabled=True)
    extended = UnitEntry("x.service", enabled=True, dropins={"a.conf": "[Service]\nUser=a\n"})
    facts = {"x.service": on_host("loaded", "generated")}
    assert judge(EMPTY, config(None, plain), facts).idle
    assert not judge(EMPTY, config(None, extended), facts).idle


@pytest.mark.finding("units: aliases", "An alias that the current config names already stops no later config.")
def test_an_entry_that_became_an_alias_stops_no_later_config() -> None:
    new = config(None, UnitEntry("x.service", enabled=True))
    facts = {"x.service": on_host("loaded", "alias", "real.service")}
    assert judge(EMPTY, new, facts).problems
    assert not judge(new, new, facts, current=new).problems


def test_an_alias_of_a_template_is_refused_as_well() -> None:
    new = config(None, UnitEntry("x@.service", enabled=True))
    (problem,) = judge(EMPTY, new, {"x@.service": on_host("loaded", "alias", "x@.service")}).problems
    assert "is an alias of another template" in problem.message


@pytest.mark.parametrize("file", ["generated", "transient"])
def test_an_alias_that_a_program_made_is_a_warning(file: str) -> None:
    found = judge(EMPTY, config(None, ENABLED), {"x.service": on_host("loaded", file, "real.service")})
    assert [problem.path for problem in found.warnings] == ["unit:x.service"]
    assert not found.problems


def test_an_alias_of_a_unit_that_is_gone_is_a_unit_from_nowhere() -> None:
    found = judge(EMPTY, config(None, ENABLED), {"x.service": on_host("not-found", "alias")})
    assert list(found.missing) == ["unit:x.service"]
    assert not found.problems


def test_a_unit_that_this_config_unmasks_is_not_refused() -> None:
    old, new = (config(None, UnitEntry("x.service", enabled=True, mask=mask)) for mask in (True, False))
    facts = {"x.service": on_host("masked", "masked")}
    assert not judge(old, new, facts).problems
    assert judge(EMPTY, new, facts).problems


def test_all_aliases_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(unit_origin, "assignments", lambda text: read.append(text) or [])
    units = {f"/etc/systemd/system/u{number}.service": SERVICE for number in range(50)}
    brought = Brought(config(units))
    assert {brought.alias_of(f"a{number}.service") for number in range(50)} == {""}
    assert len(read) == 50


def test_the_first_directory_of_a_unit_or_a_drop_in_wins() -> None:
    etc, local = "/etc/systemd/system", "/usr/local/lib/systemd/system"
    files = {f"{local}/w.service": "2", f"{etc}/w.service": "1", f"{local}/w.service.d/a.conf": "4"}
    files |= {f"{etc}/w.service.d/a.conf": "3", f"{etc}/service.d/b.conf": "5"}
    assert Brought(config(files)).texts_of("w.service") == ["1", "3", "5"]
