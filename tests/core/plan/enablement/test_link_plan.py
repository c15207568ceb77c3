# SPDX-License-Identifier: Apache-2.0
"""What becomes of the links, from all entries of a config together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile, SymbolicLink, expand
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.enablement.link_plan import LinkClaims, LinkPlan, UnitSteps, disabled_without, link_plan
from nodeagent.core.plan.enablement.links import links_of
from nodeagent.core.plan.enablement.stored import claims_from_text, claims_to_text
from nodeagent.core.plan.enablement.unit_files import EnablementFacts
from nodeagent.core.plan.steps import PresetUnit, UnitStep, write_steps

ETC = "/etc/systemd/system"
LIB = "/usr/lib/systemd/system"
M = "multi-user.target.wants"


def text(*lines: str, wanted: str = "multi-user.target") -> str:
    return "\n".join(["[Service]", "ExecStart=/bin/true", "[Install]", f"WantedBy={wanted}", *lines, ""])


def mc(*units: UnitEntry) -> MachineConfig:
    return MachineConfig("x", units={unit.name: unit for unit in units})


class Host:
    """Links, files and claims that follow one config after another."""

    def __init__(self, files: Mapping[str, str], links: Mapping[str, str] | None = None, *presets: str) -> None:
        self.files: dict[str, FileTreeEntry] = {path: RegularFile(each.encode()) for path, each in files.items()}
        self.links = dict(links or {})
        self.presets = presets
        self.claims: LinkClaims = {}
        self.config = mc()
        self.managed: set[str] = set()

    def plan(self, config: MachineConfig) -> LinkPlan:
        steps = [step for step in write_steps(self.config, config) if isinstance(step, UnitStep)]
        changed = {step.unit for step in steps}
        preset = {step.unit for step in steps if isinstance(step, PresetUnit)}
        self.writes: dict[str, FileTreeEntry | None] = dict.fromkeys(expand(self.config).keys() - expand(config).keys())
        self.writes |= {path: node for path, node in expand(config).items() if path.startswith(ETC)}
        facts = EnablementFacts(self.links, self.files, self.presets)
        return link_plan(config, UnitSteps(changed, preset, changed - self.managed), facts, self.writes, self.claims)

    def apply(self, *units: UnitEntry) -> dict[str, str]:
        config = mc(*units)
        plan = self.plan(config)
        after = {**self.links, **plan.changes}
        self.links = {path: to for path, to in after.items() if to is not None}
        self.files = {path: node for path, node in {**self.files, **self.writes}.items() if node is not None}
        self.claims, self.config = claims_from_text(claims_to_text(plan.claims)), config
        self.managed = {name for name, unit in config.units.items() if unit.enabled is not None or unit.contents}
        return self.links


def on(name: str, contents: str | None = None, **more: object) -> UnitEntry:
    return UnitEntry(name, contents, enabled=True, **more)  # type: ignore[arg-type]


@pytest.mark.finding(
    "units: changed templates", "A changed template keeps the links of its instances, also those of an admin."
)
@pytest.mark.finding(
    "units: instances of a changed template",
    "Instances that a config enables stay enabled when their template changes.",
)
@pytest.mark.parametrize("preset", [(), ("disable *\n",)], ids=["enabled", "disabled"])
def test_a_changed_template_keeps_its_instances(preset: tuple[str, ...]) -> None:
    host = Host({}, {f"{M}/echo@admin.service": f"{ETC}/echo@.service"}, *preset)
    instances = (on("echo@foo.service"), on("echo@bar.service"))
    first = dict(host.apply(UnitEntry("echo@.service", text()), *instances))
    assert set(first) == {f"{M}/echo@{name}.service" for name in ("admin", "foo", "bar")}
    assert host.apply(UnitEntry("echo@.service", text("# 2")), *instances) == first
    moved = host.apply(UnitEntry("echo@.service", text("# 3", wanted="x.target")), *instances)
    assert set(moved) == {
        f"{M}/echo@admin.service",
        *(f"x.target.wants/echo@{name}.service" for name in ("foo", "bar")),
    }
    assert host.apply() == {f"{M}/echo@admin.service": f"{ETC}/echo@.service"}


@pytest.mark.finding("units: changed templates", "Instances of a template of the OS outlive its override.")
def test_links_lead_to_the_unit_file_that_is_there() -> None:
    host = Host({f"{LIB}/wg@.service": text()}, {f"{M}/wg@admin.service": f"{LIB}/wg@.service"})
    link, instance = f"{M}/wg@0.service", on("wg@0.service")
    assert host.apply(instance)[link] == f"{LIB}/wg@.service"
    assert host.apply(UnitEntry("wg@.service", text("# 2")), instance)[link] == f"{ETC}/wg@.service"
    assert host.apply(instance) == {f"{M}/wg@{name}.service": f"{LIB}/wg@.service" for name in ("admin", "0")}
    assert host.apply() == {f"{M}/wg@admin.service": f"{LIB}/wg@.service"}


@pytest.mark.finding(
    "units: links of other units", "A unit that leaves takes no link of another unit with it, whatever Also= names."
)
def test_an_entry_that_leaves_gives_the_links_back() -> None:
    files = {f"{LIB}/i.service": text("Also=i.socket"), f"{LIB}/i.socket": text(wanted="sockets.target")}
    before = {"sockets.target.wants/i.socket": "../i.socket", "x.target.wants/i.service": "/elsewhere/i.service"}
    host = Host(files, before)
    assert host.apply(on("i.service")) == {**before, f"{M}/i.service": f"{LIB}/i.service"}
    assert host.apply() == before
    assert host.apply(UnitEntry("i.service", enabled=False)) == {}
    assert host.apply() == before


@pytest.mark.finding(
    "units: other units in Also=", "Each entry has the enablement that it demands, whatever Also= of another names."
)
@pytest.mark.parametrize("first", [(True, True), (None, None), (True, False)])
def test_both_entries_hold(first: tuple[bool | None, bool | None]) -> None:
    files = {f"{LIB}/z.service": text("Also=z.socket"), f"{LIB}/z.socket": text("Also=z.service", wanted="s.target")}
    service, socket = (f"{M}/z.service", f"{LIB}/z.service"), ("s.target.wants/z.socket", f"{LIB}/z.socket")
    host = Host(files)
    host.apply(*(UnitEntry(n, enabled=e) for n, e in zip(("z.service", "z.socket"), first, strict=True)))
    assert host.apply(UnitEntry("z.service", enabled=False), on("z.socket")) == dict([socket])
    assert host.apply(on("z.service"), UnitEntry("z.socket", enabled=False)) == dict([service])
    assert host.apply(on("z.service"), on("z.socket")) == dict([service, socket])
    assert host.apply(on("z.socket")) == dict([service, socket]), "Also= of the socket demands the service"
    assert host.apply() == {}


def test_a_shared_link_stays_until_the_last_entry_leaves() -> None:
    files = {f"{LIB}/{name}.service": text("Also=c.socket") for name in "ab"} | {f"{LIB}/c.socket": text()}
    host = Host(files)
    host.apply(on("a.service"), on("b.service"))
    assert f"{M}/c.socket" in host.apply(on("b.service"))
    assert host.apply() == {}


@pytest.mark.finding(
    "units: links of an admin", "An alias of another unit, default.target among them, comes back with its old target."
)
def test_a_replaced_alias_comes_back() -> None:
    before = {"bus.service": f"{ETC}/a.service", "default.target": f"{LIB}/multi-user.target", f"{M}/a.service": "x"}
    host = Host({f"{ETC}/a.service": text("Alias=bus.service")}, before)
    new = host.apply(
        on("b.service", text("Alias=bus.service")), on("my.target", "[Unit]\n[Install]\nAlias=default.target\n")
    )
    assert new["bus.service"] == f"{ETC}/b.service"
    assert new["default.target"] == f"{ETC}/my.target"
    assert host.apply() == before


@pytest.mark.finding(
    "units: links of an admin", "Links that an admin added to a unit of a config outlive a change of it."
)
def test_links_of_an_admin_outlive_a_change_of_contents() -> None:
    host = Host({})
    host.apply(on("a.service", text()))
    host.links["basic.target.wants/a.service"] = "../a.service"
    host.apply(on("a.service", text("# 2")))
    assert host.links == {f"{M}/a.service": f"{ETC}/a.service", "basic.target.wants/a.service": "../a.service"}


@pytest.mark.finding("units: switched off by an alias", "A unit that was switched off by its alias is given back.")
def test_a_unit_that_was_switched_off_by_its_alias_comes_back() -> None:
    before = {"nick.service": f"{ETC}/real.service", f"{M}/real.service": f"{ETC}/real.service"}
    nick = UnitEntry("nick.service", enabled=False)
    host = Host({f"{ETC}/real.service": text("Alias=nick.service")}, before)
    host.files[f"{ETC}/nick.service"] = SymbolicLink(f"{ETC}/real.service")
    assert host.apply(nick) == {}
    del host.files[f"{ETC}/nick.service"]
    assert host.apply(nick, UnitEntry("other.service", enabled=False)) == {}
    assert host.apply(UnitEntry("nick.service", enabled=False, dropins={"a.conf": "[Unit]\n"})) == {}
    assert host.apply() == before


@pytest.mark.finding("units: install sections", "Links follow an [Install] section in a drop-in.")
@pytest.mark.finding("units: drift of links", "An old link goes when the drop-in that named it changes or leaves.")
def test_links_follow_a_drop_in() -> None:
    host = Host({})
    for target in ("multi-user.target", "basic.target"):
        dropin = {"10-i.conf": f"[Install]\nWantedBy={target}\n"}
        links = host.apply(on("i.service", "[Service]\nExecStart=/bin/true\n", dropins=dropin))
        assert links == {f"{target}.wants/i.service": f"{ETC}/i.service"}
    assert host.apply(on("i.service", "[Service]\nExecStart=/bin/true\n")) == {}


def test_a_host_that_another_agent_managed_keeps_no_dangling_link() -> None:
    unit = on("a.service", text())
    host = Host({f"{ETC}/a.service": text()}, {f"{M}/a.service": f"{ETC}/a.service", f"{M}/ssh.service": "x"})
    host.config, host.managed = mc(unit, on("ssh.service")), {"a.service", "ssh.service"}
    host.files[f"{LIB}/ssh.service"] = RegularFile(text().encode())
    assert host.apply() == {f"{M}/ssh.service": "x"}, "a unit of the OS stays as it was found"


def test_presets_decide_about_new_contents() -> None:
    host = Host({}, None, "enable wanted.service\n", "enable t@.service a b\ndisable *\n")
    links = host.apply(*(UnitEntry(name, text()) for name in ("wanted.service", "other.service", "t@.service")))
    assert set(links) == {f"{M}/wanted.service", f"{M}/t@a.service", f"{M}/t@b.service"}


def test_a_mask_takes_the_links_of_its_unit_only() -> None:
    files = {f"{LIB}/i.service": text("Also=i.socket"), f"{LIB}/i.socket": text()}
    before = {f"{M}/i.service": "x", f"{M}/i.socket": "x"}
    host = Host(files, before)
    assert host.apply(UnitEntry("i.service", mask=True)) == {f"{M}/i.socket": "x"}
    assert host.apply() == before


def test_an_entry_that_drifted_and_is_left_alone_gets_no_link() -> None:
    host = Host({f"{LIB}/a.service": text()})
    plan = link_plan(mc(on("a.service")), UnitSteps(left={"a.service"}), EnablementFacts({}, host.files), {}, {})
    assert plan.changes == {}


@pytest.mark.parametrize("damaged", ["[]", '{"a": 1}', '{"a": ["x"]}', "{"])
def test_damaged_claims_are_refused(damaged: str) -> None:
    with pytest.raises(ValueError):
        claims_from_text(damaged)


@pytest.mark.finding("units: links of an admin", "An alias replaces neither a unit file nor a mask.")
def test_an_alias_takes_no_place_of_a_unit_file_or_a_mask() -> None:
    host = Host({f"{ETC}/b.service": text()}, {"c.service": "/dev/null"})
    host.files[f"{ETC}/c.service"] = SymbolicLink("/dev/null")
    links = host.apply(
        on("a.service", text("Alias=b.service c.service d.service e.service")), UnitEntry("d.service", mask=True)
    )
    assert links == {
        "c.service": "/dev/null",
        "e.service": f"{ETC}/a.service",
        f"{M}/a.service": f"{ETC}/a.service",
    }
    # An admin masks an alias of ours.
    host.links["e.service"], host.files[f"{ETC}/e.service"] = "/dev/null", SymbolicLink("/dev/null")
    assert host.apply() == {"c.service": "/dev/null", "e.service": "/dev/null"}


@pytest.mark.finding(
    "units: links of an admin", "A unit may leave for another one that has its name as an alias, and come back."
)
def test_an_alias_takes_the_place_of_a_unit_that_leaves() -> None:
    host = Host({})
    old, new = on("old.service", text()), on("new.service", text("Alias=old.service"))
    mine = {"old.service": f"{ETC}/new.service", f"{M}/new.service": f"{ETC}/new.service"}
    assert host.apply(old) == {f"{M}/old.service": f"{ETC}/old.service"}
    assert host.apply(new) == mine
    assert host.apply() == {}


@pytest.mark.finding(
    "units: links of an admin", "An alias that an entry no longer enables goes back to the unit from before."
)
@pytest.mark.parametrize("off", [UnitEntry("g.target", enabled=False), UnitEntry("g.target", mask=True)])
def test_default_target_goes_back_when_its_entry_is_switched_off(off: UnitEntry) -> None:
    before = {"default.target": f"{LIB}/multi-user.target"}
    host = Host({f"{LIB}/g.target": "[Install]\nAlias=default.target\n"}, before)
    assert host.apply(on("g.target")) == {"default.target": f"{LIB}/g.target"}
    assert host.apply(off) == before
    assert host.apply() == before


@pytest.mark.parametrize(
    ("install", "links", "expected"),
    [
        (text(), {}, True),
        (text("Alias=b.service"), {}, True),
        # It was enabled before, here or for another target.
        (text(), {f"{M}/a.service": f"{LIB}/a.service"}, False),
        (text(), {"other.target.wants/a.service": f"{LIB}/a.service"}, False),
        (text("Alias=b.service"), {"b.service": f"{LIB}/c.service"}, True),
        # The entry makes no link.
        ("[Service]\nExecStart=/bin/true\n", {}, False),
    ],
)
def test_a_unit_is_disabled_again_if_no_link_is_left(install: str, links: dict[str, str], expected: bool) -> None:
    host = Host({f"{LIB}/a.service": install, f"{LIB}/c.service": text()}, links)
    host.apply(UnitEntry("a.service", enabled=True))
    assert disabled_without("a.service", host.links, host.claims) == expected
    host.apply()
    assert host.links == links
    assert (not links_of(host.links, "a.service")) == (expected or not links)
