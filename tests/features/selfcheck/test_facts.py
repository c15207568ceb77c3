# SPDX-License-Identifier: Apache-2.0
"""The readers of the installation: real files in a directory, a real journalctl, and services on a private bus."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from dbus_next import Message, Variant

import nodeagent
from nodeagent import installed
from nodeagent.core.self_check import NotRead, OsService, ReachFacts
from nodeagent.features.selfcheck.decide.bus import (
    ACTIONS,
    BUS_NAME,
    UNIT_FILE,
    NameFacts,
    PolkitDecision,
    PolkitFacts,
    UnitFacts,
)
from nodeagent.features.selfcheck.decide.files import FileKind, PathFacts
from nodeagent.features.selfcheck.decide.os_fields import OsFacts
from nodeagent.features.selfcheck.facts import files, servers, unit, versions
from nodeagent.features.selfcheck.facts.bus import is_bus_policy, read_name, read_polkit
from nodeagent.features.selfcheck.facts.os_fields import read_os_fields, read_os_service
from nodeagent.host.components import SBOM
from nodeagent.host.dbus.client import Bus
from nodeagent.host.fs import selinux
from nodeagent.host.proc import replaced_file_of
from nodeagent.reasons import hint
from tests.host.fake_systemd import FakeSystemd
from tests.kube.server import CUT, HANG, Answer, serving
from tests.support.fake_peer import DBusFault, FakePeer
from tests.support.fixtures import PrivateBus

TREE = Path(__file__).parents[3] / "systemd"
OWN = f"etc/systemd/system/{UNIT_FILE.rpartition('/')[2]}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of the package that are not built."""
    return Path(shutil.copytree(TREE, tmp_path / "root"))


def test_the_unit_of_a_host_that_is_not_booted(root: Path) -> None:
    assert not unit.is_booted(root)
    assert unit.read_unit_files(root) == UnitFacts(UNIT_FILE, "disabled")
    link = root / "usr/lib/systemd/system/multi-user.target.wants/nodeagent.service"
    link.parent.mkdir()
    link.symlink_to("../nodeagent.service")
    assert unit.read_unit_files(root) == UnitFacts(UNIT_FILE, "disabled", wanted=True)
    link.unlink()
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    (wants / "nodeagent.service").symlink_to(UNIT_FILE)
    assert unit.read_unit_files(root) == UnitFacts(UNIT_FILE, "enabled")
    (root / OWN).write_text("[Service]\n")
    assert unit.read_unit_files(root) == UnitFacts(f"/{OWN}", "enabled")
    (root / OWN).unlink()
    (root / OWN).symlink_to("/dev/null")
    assert unit.read_unit_files(root).masked
    assert unit.read_unit_files(root / "etc") == UnitFacts("", "")


async def test_the_unit_of_systemd(bus: Bus, private_bus: PrivateBus, tmp_path: Path) -> None:
    systemd = FakeSystemd()
    systemd.properties |= {
        "FragmentPath": Variant("s", UNIT_FILE),
        "UnitFileState": Variant("s", "enabled"),
        "UnitFilePreset": Variant("s", "disabled"),
        "NeedDaemonReload": Variant("b", True),
        "MainPID": Variant("u", 7),
        "Version": Variant("s", "257.7"),
        "Environment": Variant("as", []),
    }
    async with await systemd.start(private_bus.address):
        found = await unit.read_unit(bus)
        assert found == UnitFacts(UNIT_FILE, "enabled", "disabled", "active", outdated=True, pid=7)
        link = tmp_path / "usr/lib/systemd/system/multi-user.target.wants/nodeagent.service"
        link.parent.mkdir(parents=True)
        link.symlink_to("../nodeagent.service")
        assert (await unit.read_unit(bus, tmp_path)).wanted
        assert await unit.read_systemd_version(bus) == "257.7"
        assert not await unit.proxies(bus, "updater.service")
        systemd.properties["Environment"] = Variant("as", ["HTTPS_PROXY=http://p:1"])
        assert await unit.proxies(bus, "updater.service")
        systemd.properties["LoadState"] = Variant("s", "not-found")
        assert await unit.read_unit(bus) == UnitFacts("", "")
        systemd.properties["LoadState"] = Variant("s", "masked")
        assert (await unit.read_unit(bus)).masked


@dataclass(frozen=True)
class Backend:
    """The door of a feature that serves the OS, or does not have this host. ``kept`` if it has staged here before."""

    service: OsService | None
    kept: OsService | None = None

    async def os_service(self, _bus: Bus, chosen: bool) -> OsService | None:
        return self.kept if chosen else self.service


async def test_the_first_back_end_that_has_the_host_is_asked(bus: Bus, tmp_path: Path) -> None:
    mine, other = OsService("mine", "mine.service"), OsService("other", "other.service")
    with installed.replaced([Backend(None), Backend(mine), Backend(other)]):  # type: ignore[list-item]
        assert await read_os_fields(bus, "", tmp_path) == OsFacts(mine)
    (tmp_path / "proc/sys/crypto").mkdir(parents=True)
    (tmp_path / "proc/sys/crypto/fips_enabled").write_text("1\n")
    with installed.replaced([Backend(None)]):  # type: ignore[list-item]
        found = await read_os_fields(bus, "", tmp_path)
    assert ("NoDeployments" in found.service.why, found.service.remedy) == (True, hint("NoDeployments"))
    assert found.fips


@pytest.mark.finding(
    "OS: fields in the self-check", "The self-check names the program that the first staging of the host has chosen."
)
async def test_the_back_end_that_has_staged_here(bus: Bus) -> None:
    """As a host with rpm-ostree that libostree serves, because its first image had none."""
    mine, other = OsService("mine", "mine.service"), OsService("other", "other.service")
    with installed.replaced([Backend(None, mine), Backend(other, other)]):  # type: ignore[list-item]
        assert await read_os_service(bus, "0") == mine
        assert await read_os_service(bus, "1") == other
        assert await read_os_service(bus, "") == other
        assert await read_os_service(bus, "a feature that has left") == other
        assert await read_os_service(bus, None) == replace(other, others=("mine",))
    with installed.replaced([Backend(None), Backend(other)]):  # type: ignore[list-item]
        assert await read_os_service(bus, "0") == other, "it cannot any more"
        assert await read_os_service(bus, None) == other


def test_policy_of_the_bus(root: Path) -> None:
    assert is_bus_policy(root) is True
    path = next(root.rglob("org.nodeagent.Agent1.conf"))
    path.write_text(path.read_text().replace('user="root"', 'user="core"'))
    assert is_bus_policy(root) is False
    path.write_text("<busconfig>")
    assert isinstance(is_bus_policy(root), NotRead)
    path.unlink()
    assert isinstance(is_bus_policy(root), NotRead)


async def test_name(bus: Bus, private_bus: PrivateBus) -> None:
    assert await read_name(bus) == NameFacts()
    async with await FakePeer(BUS_NAME).start(private_bus.address) as daemon:
        assert (await read_name(bus)).version == ""
        daemon.on("Get", lambda _m: ("v", (Variant("s", "1.2"),)))
        found = await read_name(bus)
        assert (found.version, found.pid > 0) == ("1.2", True)


def row(action: str, number: int = 2) -> list[Any]:
    return [action, "", "", "", "", "", number, number, number, {}]


async def test_polkit(bus: Bus, private_bus: PrivateBus, root: Path) -> None:
    assert isinstance(await read_polkit(bus, root), NotRead), "it is not installed"

    def decide(message: Message) -> Any:
        if message.body[1].endswith(".diff"):
            raise DBusFault("org.freedesktop.PolicyKit1.Error.Failed")
        return "(bba{ss})", ([False, True, {}],)

    async with await FakePeer("org.freedesktop.PolicyKit1").start(private_bus.address) as authority:
        authority.on("EnumerateActions", lambda _m: ("a(ssssssuuua{ss})", ([row(a) for a in [*ACTIONS, "other"]],)))
        authority.on("CheckAuthorization", decide)
        found = await read_polkit(bus, root)
    assert isinstance(found, PolkitFacts)
    assert found.installed.keys() == found.known.keys() == ACTIONS
    assert found.installed["org.nodeagent.agent1.verify"] == ("auth_admin", "yes", "yes")
    assert found.known["org.nodeagent.agent1.apply"] == found.installed["org.nodeagent.agent1.apply"]
    assert ACTIONS - found.decisions.keys() == {"org.nodeagent.agent1.diff"}
    assert set(found.decisions.values()) == {PolkitDecision(allowed=False, challenge=True)}
    assert all(body[3] == 0 for member, body in authority.calls if member == "CheckAuthorization"), "without a prompt"
    next(root.rglob("*.policy")).write_text("<policyconfig>")
    broken = await read_polkit(bus, root)
    assert isinstance(broken, NotRead)
    assert broken.fault


def test_paths(root: Path) -> None:
    (root / "file").write_text("")
    (root / "file").chmod(0o640)
    (root / "link").symlink_to("file")
    found = files.read_path("/file", root)
    assert isinstance(found, PathFacts)
    assert (found.path, found.kind, found.mode) == ("/file", FileKind.FILE, 0o640)
    link = files.read_path("/link", root)
    assert isinstance(link, PathFacts)
    assert link.kind == FileKind.LINK
    assert files.read_path("/missing", root) is None
    assert files.read_path("/file/below", root) is None


def test_manifest(root: Path) -> None:
    assert isinstance(files.read_manifest(root), NotRead)
    manifest = root / files.MANIFEST[1:]
    manifest.write_text("usr/lib/nodeagent/manifest\nusr/bin/gone\n")
    found = files.read_manifest(root)
    assert not isinstance(found, NotRead)
    assert found[files.MANIFEST] is not None
    assert found["/usr/bin/gone"] is None
    manifest.write_bytes(b"\xff")
    broken = files.read_manifest(root)
    assert isinstance(broken, NotRead)
    assert broken.fault


def test_labels(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(files.read_labels(["/"], enabled=False), NotRead)
    monkeypatch.setattr(files, "policy_label", lambda _path, _mode: "u:r:bin_t:s0")
    monkeypatch.setattr(selinux.Labels, "read", lambda _self, _fd: "u:r:usr_t:s0")
    found = files.read_labels([str(root), str(root / "missing")], enabled=True)
    assert found == [PathFacts(str(root), "", label="u:r:usr_t:s0", wanted="u:r:bin_t:s0")]
    monkeypatch.setattr(files, "policy_label", lambda _path, _mode: None)
    assert isinstance(files.read_labels([str(root)], enabled=True), NotRead)


def test_the_domain_of_the_daemon(tmp_path: Path) -> None:
    assert isinstance(files.read_domain(1, enabled=False), NotRead)
    assert isinstance(files.read_domain(0, enabled=True), NotRead)
    assert isinstance(files.read_domain(7, enabled=True, proc=tmp_path), NotRead)
    attributes = tmp_path / "7/attr"
    attributes.mkdir(parents=True)
    (attributes / "current").write_bytes(b"system_u:system_r:nodeagent_t:s0\0")
    assert files.read_domain(7, enabled=True, proc=tmp_path) == "system_u:system_r:nodeagent_t:s0"


async def test_catalog(tmp_path: Path) -> None:
    known, other = "a" * 32, "b" * 32
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\necho '{known} nodeagent: it has started'\necho 'Failed to find {other}'\nexit 1\n")
    program.chmod(0o755)
    assert await files.read_catalog([known, other], str(program)) == {known}
    assert await files.read_catalog([known], str(tmp_path / "missing")) == NotRead("journalctl is not installed")
    program.chmod(0o644)
    failed = await files.read_catalog([known], str(program))
    assert isinstance(failed, NotRead)
    assert failed.fault


def listed(path: Path, components: str) -> Path:
    path.write_text(
        f'{{"metadata": {{"component": {{"name": "nodeagent", "version": "1"}}}}, "components": [{components}]}}'
    )
    return path


def test_versions(tmp_path: Path) -> None:
    path = tmp_path / SBOM
    absent = versions.read_versions("", path)
    assert isinstance(absent.listed, NotRead)
    assert isinstance(absent.interpreter, NotRead)
    found = versions.read_versions("257", listed(path, '{"name": "libffi"}, {"name": "python", "version": "3"}'))
    assert found.listed == {"nodeagent": "1", "libffi": "", "python": "3"}
    assert found.loaded["sqlite"] == sqlite3.sqlite_version
    assert found.host["systemd"] == "257"
    assert found.interpreter == ""
    property_ = '{"name": "nodeagent:interpreter", "value": "testing"}'
    path.write_text(path.read_text().replace('"metadata": {', f'"metadata": {{"properties": [{property_}], '))
    assert versions.read_versions("", path).interpreter == "testing"
    path.write_text("[]")
    broken = versions.read_versions("", path).listed
    assert isinstance(broken, NotRead)
    assert broken.fault


def test_a_package_without_an_interpreter_lists_nothing_of_the_host(tmp_path: Path) -> None:
    found = versions.read_versions("", listed(tmp_path / SBOM, '{"name": "aiohttp", "version": "3"}'))
    assert found.loaded == {"nodeagent": nodeagent.__version__}


def test_a_replaced_file_of_the_daemon(tmp_path: Path) -> None:
    assert replaced_file_of(7, versions.PACKAGE, tmp_path) == ""
    maps = tmp_path / "7" / "maps"
    maps.parent.mkdir()
    line = "7f00-7f01 r-xp 00000000 fe:00 123    "
    maps.write_text(f"{line}/memfd:x (deleted)\n{line}/usr/lib/nodeagent/bin/python3\n{line}\n")
    assert replaced_file_of(7, versions.PACKAGE, tmp_path) == ""
    maps.write_text(f"{line}/usr/lib/nodeagent/lib/libpython3.14.so.1.0 (deleted)\n")
    assert replaced_file_of(7, versions.PACKAGE, tmp_path) == "/usr/lib/nodeagent/lib/libpython3.14.so.1.0"


@pytest.mark.parametrize(
    ("answer", "well"), [(Answer(401), True), (Answer(404), True), (Answer(503), False), (CUT, False)]
)
async def test_servers(root: Path, answer: Any, well: bool) -> None:
    async with serving(answer) as server:
        found = await servers.reach_registry(f"127.0.0.1:{server.port}", root=root, scheme="http")
    assert isinstance(found, ReachFacts)
    assert (found.error == "") is well
    assert {request.method for request in server.requests} == {"GET"}
    assert server.requests[0].target == "/v2/"


async def test_a_server_that_does_not_answer_has_a_deadline(root: Path) -> None:
    async with serving(HANG) as server:
        found = await servers.reach_registry(f"127.0.0.1:{server.port}", root=root, scheme="http", timeout=0.2)
    assert isinstance(found, ReachFacts)
    assert found.error


async def test_a_registry_with_rules_of_the_host(root: Path) -> None:
    conf = root / "etc/containers/registries.conf.d/50-mirror.conf"
    conf.parent.mkdir(parents=True)
    conf.with_name("40-bad.conf").write_text("[[")
    conf.write_text('[[registry]]\nprefix = "quay.io"\nlocation = "mirror.corp"\n')
    assert isinstance(await servers.reach_registry("quay.io", root=root), NotRead)
    (root / "etc/containers/certs.d/other.io").mkdir(parents=True)
    assert isinstance(await servers.reach_registry("other.io", root=root), NotRead)
