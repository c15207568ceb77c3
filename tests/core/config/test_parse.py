"""MachineConfig documents to data: every section that we apply, and every way to get one wrong."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import tracemalloc
from typing import Any

import pytest

from nodeagent.core.config import parse as parsing
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry, UserEntry
from nodeagent.core.config.parse import parse, parse_document
from nodeagent.core.config.problems import MAX_SHOWN
from nodeagent.core.config.text.data_url import MAX_FILE_BYTES
from nodeagent.errors import InvalidInput, Problem
from tests.core.config.documents import (
    Doc,
    as_yaml,
    document,
    file,
    in_base64,
    packed,
    paths_of,
    plain,
    problems,
    text,
    with_files,
    with_units,
    with_users,
)

FILES = "spec.config.storage.files"
UNITS = "spec.config.systemd.units"
USERS = "spec.config.passwd.users"
KEY = "ssh-ed25519 AAAA me"


def parsed(doc: Doc) -> MachineConfig:
    """Read as JSON and as YAML, with the same result."""
    config = parse(text(doc))
    assert parse(as_yaml(doc)) == config
    return config


def only_file(doc: Doc) -> FileEntry:
    (entry,) = parsed(doc).files.values()
    return entry


def test_the_least_config() -> None:
    assert parsed(document()) == MachineConfig("rendered-worker-1")
    assert parsed(document(config={})) == MachineConfig("rendered-worker-1")
    assert parsed({**document(), "spec": None}) == MachineConfig("rendered-worker-1")
    assert parsed({**document(), "status": {"anything": [1]}}) == MachineConfig("rendered-worker-1")


def test_a_rendered_config() -> None:
    """As the machine-config-operator writes it: empty objects where Go has no pointer."""
    doc = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {
            "name": "rendered-worker-0a1b",
            "annotations": {"machineconfiguration.openshift.io/generated-by-controller-version": "x"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"controller": True}],
        },
        "spec": {
            "baseOSExtensionsContainerImage": "quay.io/ext@sha256:1",
            "config": {
                "ignition": {"config": {"replace": {"verification": {}}}, "proxy": {}, "security": {"tls": {}},
                             "timeouts": {}, "version": "3.5.0"},
                "kernelArguments": {},
                "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [KEY]}]},
                "storage": {"files": [
                    {"contents": {"compression": "", "source": in_base64(b"a"), "verification": {}},
                     "group": {}, "mode": 420, "overwrite": True, "path": "/etc/a", "user": {"name": "root"}},
                    {"contents": {"source": None}, "path": "/etc/b"},
                ]},
                "systemd": {"units": [
                    {"contents": "[Unit]\n", "dropins": [{"contents": "[Service]\n", "name": "10-a.conf"}],
                     "enabled": True, "name": "a.service"},
                    {"mask": True, "name": "b.service"},
                    {"dropins": [{"contents": "", "name": "c.conf"}], "name": "c.service"},
                ]},
            },
            "extensions": ["usbguard", "kerberos", "usbguard"],
            "fips": True,
            "kernelArguments": ["b a", 'c="d e"'],
            "kernelType": "realtime",
            "osImageURL": "quay.io/os@sha256:2",
        },
    }  # fmt: skip
    assert parsed(doc) == MachineConfig(
        "rendered-worker-0a1b",
        files={"/etc/a": FileEntry("/etc/a", b"a"), "/etc/b": FileEntry("/etc/b", b"")},
        units={
            "a.service": UnitEntry("a.service", "[Unit]\n", True, False, {"10-a.conf": "[Service]\n"}),
            "b.service": UnitEntry("b.service", mask=True),
            "c.service": UnitEntry("c.service"),
        },
        users={"core": UserEntry("core", (KEY,))},
        kernel_arguments=("b", "a", 'c="d e"'),
        extensions=("kerberos", "usbguard"),
        kernel_type="realtime",
        fips=True,
        os_image_url="quay.io/os@sha256:2",
        extensions_image="quay.io/ext@sha256:1",
    )


def test_ignition_2() -> None:
    doc = document(
        {
            "storage": {
                "files": [{**file(text="x"), "filesystem": "root", "mode": 0o600, "user": {"id": 1000}}],
                "filesystems": [],
            },
            "systemd": {"units": [{"name": "a.service", "enable": True}, {"name": "b.service", "enable": False}]},
            "networkd": {"units": []},
        },
        version="2.2.0",
    )
    config = parsed(doc)
    assert config.files == {"/etc/a": FileEntry("/etc/a", b"x", 0o600, 1000)}
    assert config.units == {"a.service": UnitEntry("a.service", enabled=True), "b.service": UnitEntry("b.service")}
    assert config.unapplied == {}


def test_ignition_2_in_files() -> None:
    doc = with_files(file(), {**file("/etc/b"), "filesystem": "data"}, version="2.2.0")
    assert paths_of(doc) == [f"{FILES}[0].filesystem", f"{FILES}[1].filesystem"]
    appended = with_files({**file(), "filesystem": "root", "append": True}, version="2.2.0")
    assert parsed(appended).files == {}
    assert list(parsed(appended).unapplied) == ["storage.files[/etc/a]"]


@pytest.mark.parametrize("version", ["2.2.0", "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"])
def test_ignition_version_is_read(version: str) -> None:
    parsed(document({}, version=version))


@pytest.mark.parametrize(
    "version", ["", "3", "3.2", "2.1.0", "2.3.0", "3.6.0", "3.6.0-experimental", "1", 3, None, ["3.2.0"]]
)
def test_ignition_version_is_refused(version: Any) -> None:
    doc = document({})
    doc["spec"]["config"]["ignition"]["version"] = version
    assert "spec.config.ignition.version" in paths_of(doc)


# Files

CONTENTS: dict[str, tuple[Any, bytes]] = {
    "no contents": (None, b""),
    "empty contents": ({}, b""),
    "no source": ({"source": None}, b""),
    "empty source": ({"source": ""}, b""),
    "empty source, packed": ({"source": "", "compression": "gzip"}, b""),
    "percent": ({"source": "data:,a%0Ab:c"}, b"a\nb:c"),
    "base64": ({"source": "data:;base64,aGk="}, b"hi"),
    "no compression": ({"source": "data:,a", "compression": ""}, b"a"),
    "gzip": (packed(b"hello"), b"hello"),
    "sha256": ({"source": "data:,a", "verification": {"hash": "sha256-" + hashlib.sha256(b"a").hexdigest()}}, b"a"),
    "sha512": ({"source": "data:,a", "verification": {"hash": "sha512-" + hashlib.sha512(b"a").hexdigest()}}, b"a"),
    "sha256 of what was packed": (
        {**packed(b"a"), "verification": {"hash": "sha256-" + hashlib.sha256(b"a").hexdigest().upper()}},
        b"a",
    ),
}


@pytest.mark.parametrize("case", CONTENTS)
def test_file_contents(case: str) -> None:
    contents, data = CONTENTS[case]
    assert only_file(with_files({"path": "/etc/a", "contents": contents})) == FileEntry("/etc/a", data)


@pytest.mark.parametrize(
    ("fields", "entry"),
    [
        ({}, FileEntry("/etc/a", b"")),
        ({"mode": 0}, FileEntry("/etc/a", b"", 0)),
        ({"mode": 0o777}, FileEntry("/etc/a", b"", 0o777)),
        ({"mode": None, "overwrite": None, "user": None, "group": None}, FileEntry("/etc/a", b"")),
        ({"overwrite": True}, FileEntry("/etc/a", b"")),
        ({"overwrite": False}, FileEntry("/etc/a", b"", overwrite=False)),
        ({"user": {"id": 1000}, "group": {"id": 0}}, FileEntry("/etc/a", b"", user=1000)),
        ({"user": {"name": "core"}, "group": {"name": "wheel"}}, FileEntry("/etc/a", b"", user="core", group="wheel")),
        ({"user": {"name": "root"}, "group": {"name": "root"}}, FileEntry("/etc/a", b"")),
        ({"user": {"id": None, "name": None}, "group": {"id": 7, "name": ""}}, FileEntry("/etc/a", b"", group=7)),
        ({"append": []}, FileEntry("/etc/a", b"")),
    ],
)
def test_file_fields(fields: Doc, entry: FileEntry) -> None:
    assert only_file(with_files({"path": "/etc/a", **fields})) == entry


def test_mode_in_yaml_is_octal_with_a_leading_zero() -> None:
    doc = as_yaml(with_files(file())).replace(b'"path"', b'"mode": 0640, "path"')
    assert parse(doc).files["/etc/a"].mode == 0o640


A = {"source": "data:,a"}
WRONG_FILES: dict[str, tuple[Any, str, str]] = {
    "no object": ("/etc/a", "", "must be an object, is a string"),
    "null": (None, ".path", "must not be empty"),
    "no path": ({}, ".path", "must not be empty"),
    "path of a wrong type": ({"path": 1}, ".path", "must be a string, is an integer"),
    "relative path": ({"path": "etc/a"}, ".path", "must be an absolute path"),
    "name alone": ({"path": "a"}, ".path", "must be an absolute path"),
    "path with ..": ({"path": "/etc/../a"}, ".path", "must not hold . or .."),
    "path with NUL": ({"path": "/etc/a\0"}, ".path", "control characters"),
    "path of ours": ({"path": "/var/lib/nodeagent/state.db"}, ".path", "nodeagent's own"),
    "force file": ({"path": "/run/machine-config-daemon-force"}, ".path", "force a reboot"),
    "sticky": ({"path": "/a", "mode": 0o1777}, ".mode", "invalid mode 01777, cannot exceed 0777"),
    "setuid": ({"path": "/a", "mode": 0o4755}, ".mode", "invalid mode 04755, cannot exceed 0777"),
    "decimal taken for octal": ({"path": "/a", "mode": 644}, ".mode", "invalid mode 01204"),
    "negative mode": ({"path": "/a", "mode": -1}, ".mode", "is negative"),
    "mode as string": ({"path": "/a", "mode": "0644"}, ".mode", "must be an integer, is a string"),
    "mode as boolean": ({"path": "/a", "mode": True}, ".mode", "must be an integer, is a boolean"),
    "mode with a fraction": ({"path": "/a", "mode": 420.0}, ".mode", "must be an integer, is a number"),
    "overwrite as string": ({"path": "/a", "overwrite": "yes"}, ".overwrite", "must be true or false"),
    "user id and name": ({"path": "/a", "user": {"id": 1, "name": "a"}}, ".user", "cannot both be set"),
    "negative id": ({"path": "/a", "user": {"id": -1}}, ".user.id", "must be 0 to"),
    "id that means unchanged": ({"path": "/a", "group": {"id": 2**32 - 1}}, ".group.id", "must be 0 to"),
    "bad name of a user": ({"path": "/a", "user": {"name": "a:b"}}, ".user.name", "not a name"),
    "number as a name": ({"path": "/a", "user": {"name": "1000"}}, ".user.name", "not a name"),
    "user as string": ({"path": "/a", "user": "root"}, ".user", "must be an object"),
    "unknown key of a user": ({"path": "/a", "user": {"uid": 1}}, ".user", "unknown key 'uid'"),
    "contents as string": ({"path": "/a", "contents": "a"}, ".contents", "must be an object"),
    "contents as list": ({"path": "/a", "contents": [A]}, ".contents", "must be an object, is a list"),
    "remote source": ({"path": "/a", "contents": {"source": "http://x/y"}}, ".contents.source", "nothing is fetched"),
    "source without a comma": ({"path": "/a", "contents": {"source": "data:"}}, ".contents.source", "comma is missing"),
    "bad base64": ({"path": "/a", "contents": {"source": "data:;base64,a"}}, ".contents.source", "bad base64"),
    "bad percent": ({"path": "/a", "contents": {"source": "data:,%z"}}, ".contents.source", "hexadecimal"),
    "xz": (
        {"path": "/a", "contents": {**A, "compression": "xz"}},
        ".contents.compression", "unsupported compression type 'xz'",
    ),
    "not gzip": (
        {"path": "/a", "contents": {"source": "data:,abcdefghijkl", "compression": "gzip"}},
        ".contents.source", "gzip stream is damaged",
    ),
    "truncated gzip": (
        {"path": "/a", "contents": {"source": in_base64(gzip.compress(b"a")[:-3]), "compression": "gzip"}},
        ".contents.source", "truncated",
    ),
    "another hash": (
        {"path": "/a", "contents": {**A, "verification": {"hash": "sha256-" + "0" * 64}}},
        ".contents.verification.hash", "the content has another sha256",
    ),
    "unknown hash": (
        {"path": "/a", "contents": {**A, "verification": {"hash": "md5-" + "0" * 32}}},
        ".contents.verification.hash", "must be sha512- or sha256-",
    ),
    "short hash": (
        {"path": "/a", "contents": {**A, "verification": {"hash": "sha512-" + "0" * 64}}},
        ".contents.verification.hash", "must be sha512- or sha256-",
    ),
    "unknown key": ({"path": "/a", "content": A}, "", "unknown key 'content'"),
    "unknown key of contents": ({"path": "/a", "contents": {"src": "a"}}, ".contents", "unknown key 'src'"),
    "filesystem of Ignition 2": ({"path": "/a", "filesystem": "root"}, "", "unknown key 'filesystem'"),
    "append of Ignition 2": ({"path": "/a", "append": True}, ".append", "must be a list"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_FILES)
def test_file_is_refused(case: str) -> None:
    entry, path, message = WRONG_FILES[case]
    found = [p for p in problems(with_files(file("/etc/good"), file("/good"), entry)) if p.path == f"{FILES}[2]{path}"]
    assert any(message in problem.message for problem in found)


def test_content_of_a_file_is_never_shown() -> None:
    doc = with_files(
        {"path": "/a", "contents": {"source": "data:;base64,SECRET$"}},
        {"path": "/b", "contents": {"source": "data:,SECRET%"}},
        {"path": "/c", "contents": {"source": "https://SECRET@host/"}},
        {"path": "/d", "contents": {"source": "SECRET"}},
    )
    assert len(problems(doc)) == 4
    assert "SECRET" not in repr(problems(doc))
    assert "SECRET" not in repr(parse(text(with_files(file(text="SECRET")))))


# Two entries for one path, and paths below files

COLLISIONS: dict[str, tuple[Doc, list[str]]] = {
    "files": ({"storage": {"files": [file(), file("/etc/b"), file()]}}, [f"{FILES}[2].path"]),
    "the same entry with another way of writing": (
        {"storage": {"files": [file(), {**file(), "user": {"name": "core"}}]}},
        [f"{FILES}[1].path"],
    ),
    "units": (
        {"systemd": {"units": [{"name": "a.service"}, {"name": "a.service", "mask": True}]}},
        [f"{UNITS}[1].name"],
    ),
    "drop-ins": (
        {"systemd": {"units": [{"name": "a.service", "dropins": [{"name": "a.conf"}, {"name": "a.conf"}]}]}},
        [f"{UNITS}[0].dropins[1].name"],
    ),
    "users": ({"passwd": {"users": [{"name": "core"}, {"name": "core"}]}}, [f"{USERS}[1].name"]),
    "other users": ({"passwd": {"users": [{"name": "a"}, {"name": "a"}]}}, [f"{USERS}[1].name"]),
    "links": (
        {"storage": {"links": [{"path": "/a", "target": "/b"}] * 2}},
        ["spec.config.storage.links[1].path"],
    ),
    "a file and a unit": (
        {"storage": {"files": [file("/etc/systemd/system/a.service")]},
         "systemd": {"units": [{"name": "a.service", "contents": "[Unit]"}]}},
        [f"{UNITS}[0].name"],
    ),
    "a file and a masked unit": (
        {"storage": {"files": [file("/etc/systemd/system/a.service")]},
         "systemd": {"units": [{"name": "a.service", "mask": True}]}},
        [f"{UNITS}[0].name"],
    ),
    "a file and a drop-in": (
        {"storage": {"files": [file("/etc/systemd/system/a.service.d/b.conf")]},
         "systemd": {"units": [{"name": "a.service", "dropins": [{"name": "b.conf", "contents": "[Unit]"}]}]}},
        [f"{UNITS}[0].dropins[0].name"],
    ),
    "a file and the keys of core": (
        {"storage": {"files": [file("/home/core/.ssh/authorized_keys.d/ignition")]},
         "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [KEY]}]}},
        [f"{USERS}[0].sshAuthorizedKeys"],
    ),
    "a file and a link": (
        {"storage": {"files": [file()], "links": [{"path": "/etc/a", "target": "/b"}]}},
        ["spec.config.storage.links[0].path"],
    ),
    "a file and a directory": (
        {"storage": {"files": [file()], "directories": [{"path": "/etc/a"}]}},
        ["spec.config.storage.directories[0].path"],
    ),
    "a link and a directory": (
        {"storage": {"links": [{"path": "/etc/a", "target": "/b"}], "directories": [{"path": "/etc/a"}]}},
        ["spec.config.storage.links[0].path"],
    ),
    "a file below a file": (
        {"storage": {"files": [file("/etc/x"), file("/etc/a"), file("/etc/a/b/c")]}},
        [f"{FILES}[1].path"],
    ),
    "a file below a link": (
        {"storage": {"files": [file("/etc/a/b")], "links": [{"path": "/etc/a", "target": "/b"}]}},
        ["spec.config.storage.links[0].path"],
    ),
    "a file where drop-ins go": (
        {"storage": {"files": [file("/etc/systemd/system/a.service.d")]},
         "systemd": {"units": [{"name": "a.service", "dropins": [{"name": "b.conf", "contents": "[Unit]"}]}]}},
        [f"{FILES}[0].path"],
    ),
    "two files, the first in an unusual form": (
        {"storage": {"files": [{"path": "/etc/a", "contents": packed(b"a")}, file("/etc/b"), file("/etc/a")]}},
        [f"{FILES}[2].path"],
    ),
    "a file appended to twice": (
        {"storage": {"files": [{"path": "/etc/a", "append": [A]}, {"path": "/etc/a", "append": [A]}]}},
        [f"{FILES}[1].path"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COLLISIONS)
def test_two_entries_for_one_path(case: str) -> None:
    config, paths = COLLISIONS[case]
    assert paths_of(document(config)) == paths


def test_what_is_no_collision() -> None:
    parsed(
        document(
            {
                "storage": {
                    "files": [
                        file("/etc/systemd/system/a.service"),
                        file("/etc/systemd/system/a.service.d/b.conf"),
                        file("/etc/d/a"),
                    ],
                    "directories": [{"path": "/etc/d"}],
                },
                "systemd": {"units": [{"name": "a.service", "enabled": True, "dropins": [{"name": "b.conf"}]}]},
            }
        )
    )


# Units

UNIT_FORMS: list[tuple[Doc, UnitEntry]] = [
    ({}, UnitEntry("a.service")),
    ({"contents": "[Unit]\n"}, UnitEntry("a.service", "[Unit]\n")),
    ({"contents": ""}, UnitEntry("a.service")),
    ({"enabled": True}, UnitEntry("a.service", enabled=True)),
    ({"enabled": False}, UnitEntry("a.service", enabled=False)),
    ({"enabled": None, "mask": None, "contents": None, "dropins": None}, UnitEntry("a.service")),
    ({"mask": True, "contents": "[Unit]"}, UnitEntry("a.service", "[Unit]", mask=True)),
    ({"mask": False}, UnitEntry("a.service")),
    ({"dropins": []}, UnitEntry("a.service")),
    ({"dropins": [{"name": "a.conf", "contents": ""}, {"name": "b.conf"}]}, UnitEntry("a.service")),
    ({"dropins": [{"name": "a.conf", "contents": "[Unit]"}]}, UnitEntry("a.service", dropins={"a.conf": "[Unit]"})),
]


@pytest.mark.parametrize(("fields", "unit"), UNIT_FORMS)
def test_unit(fields: Doc, unit: UnitEntry) -> None:
    assert parsed(with_units({"name": "a.service", **fields})).units == {"a.service": unit}


WRONG_UNITS: dict[str, tuple[Any, str, str]] = {
    "no name": ({}, ".name", "must not be empty"),
    "bad name": ({"name": "a/b.service"}, ".name", "must consist of"),
    "no type": ({"name": "a"}, ".name", "type of a unit"),
    "newline": ({"name": "a\n.service"}, ".name", "must consist of"),
    "contents of a wrong type": ({"name": "a.service", "contents": ["x"]}, ".contents", "must be a string"),
    "NUL in contents": ({"name": "a.service", "contents": "a\0"}, ".contents", "NUL"),
    "enabled as string": ({"name": "a.service", "enabled": "true"}, ".enabled", "must be true or false"),
    "mask as number": ({"name": "a.service", "mask": 1}, ".mask", "must be true or false"),
    "enable of Ignition 2": ({"name": "a.service", "enable": True}, "", "unknown key 'enable'"),
    "unknown key": ({"name": "a.service", "masked": True}, "", "unknown key 'masked'"),
    "dropins as object": ({"name": "a.service", "dropins": {"a": 1}}, ".dropins", "must be a list"),
    "bad drop-in": ({"name": "a.service", "dropins": [{"name": "a"}]}, ".dropins[0].name", "must end in .conf"),
    "drop-in without name": ({"name": "a.service", "dropins": [{}]}, ".dropins[0].name", "must not be empty"),
    "NUL in a drop-in": (
        {"name": "a.service", "dropins": [{"name": "a.conf", "contents": "\0"}]}, ".dropins[0].contents", "NUL",
    ),
    "unknown key of a drop-in": (
        {"name": "a.service", "dropins": [{"name": "a.conf", "content": ""}]}, ".dropins[0]", "unknown key 'content'",
    ),
    "masking ourselves": ({"name": "nodeagent.service", "mask": True}, ".name", "cannot switch itself off"),
    "disabling ourselves": ({"name": "nodeagent.service", "enabled": False}, ".name", "cannot switch itself off"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_UNITS)
def test_unit_is_refused(case: str) -> None:
    unit, path, message = WRONG_UNITS[case]
    found = [p for p in problems(with_units(unit)) if p.path == f"{UNITS}[0]{path}"]
    assert any(message in problem.message for problem in found)


def test_ignition_2_enable_against_enabled() -> None:
    doc = with_units({"name": "a.service", "enable": True, "enabled": False}, version="2.2.0")
    assert paths_of(doc) == [f"{UNITS}[0].enable"]


# Users


@pytest.mark.parametrize(
    ("fields", "user"),
    [
        ({}, UserEntry("core")),
        ({"sshAuthorizedKeys": []}, UserEntry("core")),
        ({"sshAuthorizedKeys": ["", " "]}, UserEntry("core")),
        ({"sshAuthorizedKeys": ["b", "a", "b "]}, UserEntry("core", ("a", "b"))),
        ({"sshAuthorizedKeys": ["a\nb\r\n"]}, UserEntry("core", ("a", "b"))),
        ({"passwordHash": "$6$x$y"}, UserEntry("core", (), "$6$x$y")),
        ({"passwordHash": ""}, UserEntry("core")),
        ({"passwordHash": None}, UserEntry("core")),
    ],
)
def test_core(fields: Doc, user: UserEntry) -> None:
    config = parsed(with_users({"name": "core", **fields}))
    assert config.users == {"core": user}
    assert config.unapplied == {}


@pytest.mark.parametrize(
    ("user", "path", "message"),
    [
        ({}, ".name", "name of a user"),
        ({"name": "a\nb"}, ".name", "name of a user"),
        ({"name": "core", "sshAuthorizedKeys": KEY}, ".sshAuthorizedKeys", "must be a list"),
        ({"name": "core", "sshAuthorizedKeys": [1]}, ".sshAuthorizedKeys[0]", "must be a string"),
        ({"name": "core", "sshAuthorizedKeys": ["a", "b\0"]}, ".sshAuthorizedKeys[1]", "control characters"),
        ({"name": "core", "passwordHash": "HASH\nroot::0"}, ".passwordHash", "must not hold"),
        ({"name": "core", "passwordHash": "HASH:x"}, ".passwordHash", "must not hold"),
        ({"name": "core", "passwordHash": 7}, ".passwordHash", "must be a string"),
    ],
)
def test_user_is_refused(user: Doc, path: str, message: str) -> None:
    found = [p for p in problems(with_users(user)) if p.path == f"{USERS}[0]{path}"]
    assert any(message in problem.message for problem in found)
    assert "HASH" not in repr(found)


# The rest of the spec


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ({"kernelArguments": "a"}, "kernelArguments", "must be a list"),
        ({"kernelArguments": ["a", 1]}, "kernelArguments[1]", "must be a string"),
        ({"kernelArguments": ['a="b']}, "kernelArguments[0]", "unpaired double quote"),
        ({"kernelArguments": ["a" * 4097]}, "kernelArguments[0]", "longer than 4096 characters"),
        ({"kernelArguments": ["a" * 2048] * 2}, "kernelArguments", "longer than 4096 characters together"),
        ({"extensions": ["a b"]}, "extensions[0]", "not the name of an extension"),
        ({"extensions": ["--install"]}, "extensions[0]", "not the name of an extension"),
        ({"extensions": {"a": 1}}, "extensions", "must be a list"),
        ({"kernelType": "rt"}, "kernelType", "must be one of default, realtime, 64k-pages"),
        ({"kernelType": 64}, "kernelType", "must be a string"),
        ({"fips": "true"}, "fips", "must be true or false"),
        ({"osImageURL": "a b"}, "osImageURL", "must not hold spaces"),
        ({"osImageURL": ["a"]}, "osImageURL", "must be a string"),
        ({"baseOSExtensionsContainerImage": "a\n"}, "baseOSExtensionsContainerImage", "must not hold spaces"),
        ({"kernelArgs": []}, "", "unknown key 'kernelArgs'"),
    ],
)
def test_spec_is_refused(spec: Doc, path: str, message: str) -> None:
    found = [p for p in problems(document(**spec)) if p.path == ("spec" + (f".{path}" if path else ""))]
    assert any(message in problem.message for problem in found)


@pytest.mark.parametrize(
    ("name", "normal"), [("", "default"), (None, "default"), ("default", "default"), ("64k-pages", "64k-pages")]
)
def test_kernel_type(name: str | None, normal: str) -> None:
    assert parsed(document(kernelType=name)).kernel_type == normal


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"apiVersion": "v1"}, "apiVersion"),
        ({"apiVersion": None}, "apiVersion"),
        ({"kind": "Secret"}, "kind"),
        ({"kind": ["MachineConfig"]}, "kind"),
        ({"metadata": {}}, "metadata.name"),
        ({"metadata": {"name": ""}}, "metadata.name"),
        ({"metadata": {"name": "a\nb"}}, "metadata.name"),
        ({"metadata": {"name": "../b"}}, "metadata.name"),
        ({"metadata": {"name": "n" * 254}}, "metadata.name"),
        ({"metadata": {"name": 7}}, "metadata.name"),
        ({"metadata": None}, "metadata.name"),
        ({"spec": []}, "spec"),
        ({"data": {}}, ""),
        ({"spec": {"config": "x"}}, "spec.config"),
    ],
)
def test_frame_is_refused(change: Doc, path: str) -> None:
    assert path in paths_of({**document(), **change})


@pytest.mark.parametrize("doc", [[], [document()], "text", 7, None, True])
def test_what_is_no_object(doc: object) -> None:
    with pytest.raises(InvalidInput, match="must be an object"):
        parse_document(doc)


# Sections that we do not apply


def test_unapplied_sections_are_kept_apart() -> None:
    doc = document(
        {
            "storage": {
                "disks": [{"device": "/dev/sda", "wipeTable": True}],
                "directories": [{"path": "/etc/d", "mode": 493}],
                "links": [{"path": "/etc/l", "target": "/x"}],
                "luks": [{"name": "data", "keyFile": {"source": "data:,SECRET"}, "clevis": {"tpm2": True}}],
                "raid": [{"name": "md0", "level": "raid1"}],
                "filesystems": [{"device": "/dev/sda1", "format": "xfs"}],
                "files": [
                    {"path": "/etc/a", "append": [A]},
                    {"path": "/etc/h", "contents": {**A, "httpHeaders": [{"name": "x"}]}},
                ],
            },
            "passwd": {
                "users": [{"name": "bob"}, {"name": "core", "groups": ["wheel"], "shell": "", "homeDir": None}],
                "groups": [{"name": "g"}],
            },
            "kernelArguments": {"shouldExist": ["a"]},
        }
    )
    doc["spec"]["config"]["ignition"] |= {
        "config": {"merge": [{"source": "https://x/"}]},
        "security": {"tls": {"certificateAuthorities": [A]}},
        "timeouts": {"httpTotal": 0},
        "proxy": {"httpProxy": "http://SECRET@x"},
    }
    config = parsed(doc)
    assert list(config.unapplied) == [
        "ignition.config",
        "ignition.proxy",
        "ignition.security",
        "ignition.timeouts",
        "kernelArguments",
        "passwd.groups[g]",
        "passwd.users[bob]",
        "passwd.users[core].groups",
        "storage.directories[/etc/d]",
        "storage.disks[/dev/sda]",
        "storage.files[/etc/a]",
        "storage.files[/etc/h].contents.httpHeaders",
        "storage.filesystems[/dev/sda1]",
        "storage.links[/etc/l]",
        "storage.luks[data]",
        "storage.raid[md0]",
    ]
    assert list(config.files) == ["/etc/h"]
    assert "SECRET" not in repr(config)


def test_unapplied_sections_that_say_nothing() -> None:
    sections = {"disks": [], "directories": None, "links": [], "luks": [], "raid": [], "filesystems": []}
    doc = document({"storage": sections, "passwd": {"groups": []}, "kernelArguments": {"shouldExist": []}})
    doc["spec"]["config"]["ignition"] |= {"config": {"replace": {"verification": {}}}, "timeouts": {"httpTotal": None}}
    assert parsed(doc).unapplied == {}


@pytest.mark.parametrize(
    ("section", "entry", "path"),
    [
        ("links", {"path": "etc/l"}, "links[0].path"),
        ("links", {"target": "/x"}, "links[0].path"),
        ("directories", {"path": "/etc/../d"}, "directories[0].path"),
        ("disks", {}, "disks[0].device"),
        ("luks", "data", "luks[0]"),
        ("raid", {"name": "a\nb"}, "raid[0].name"),
    ],
)
def test_unapplied_sections_are_looked_at(section: str, entry: Any, path: str) -> None:
    assert f"spec.config.storage.{path}" in paths_of(document({"storage": {section: [entry]}}))


@pytest.mark.parametrize(
    "config",
    [{"foo": {}}, {"storage": {"foo": []}}, {"passwd": {"foo": []}}, {"systemd": {"foo": []}}, {"networkd": {}}],
)
def test_unknown_sections(config: Doc) -> None:
    assert len(problems(document(config))) == 1


# All of it together


def test_all_problems_come_at_once_in_order() -> None:
    doc = document(
        {
            "storage": {"files": [*(file(f"/etc/{i}") for i in range(9)), {"path": "x"}, {"path": "/y", "mode": -1}]},
            "systemd": {"units": [{"name": "a"}]},
        },
        kernelType="x",
    )
    doc["kind"] = "Pod"
    doc["spec"]["config"]["storage"]["files"][2]["mode"] = "0644"
    assert paths_of(doc) == [
        "kind",
        f"{FILES}[2].mode",
        f"{FILES}[9].path",
        f"{FILES}[10].mode",
        f"{UNITS}[0].name",
        "spec.kernelType",
    ]
    with pytest.raises(InvalidInput) as caught:
        parse(text(doc), "b.json")
    assert caught.value.message == "b.json is invalid: kind: must be MachineConfig, is 'Pod' (and 5 more)"


def test_many_problems_are_cut() -> None:
    found = problems(with_files(*({"path": f"x{i}"} for i in range(20_000))))
    assert len(found) == MAX_SHOWN + 1
    assert found[-1] == Problem("", f"{20_000 - MAX_SHOWN} more problems are not shown")


def test_long_names_are_cut_in_messages() -> None:
    doc = with_files({"path": "x" * 100_000}, {"k" * 100_000: 1, "path": "/a"})
    assert all(len(problem.message) < 200 for problem in problems(doc))


def test_a_thousand_gzip_bombs() -> None:
    """Bounded in memory; in time by unpacking only so much of all of them together."""
    bomb = {"source": in_base64(gzip.compress(bytes(2 * MAX_FILE_BYTES))), "compression": "gzip"}
    doc = text(with_files(*({"path": f"/etc/{i}", "contents": bomb} for i in range(300))))
    tracemalloc.start()
    with pytest.raises(InvalidInput) as caught:
        parse(doc)
    assert tracemalloc.get_traced_memory()[1] < 4 * MAX_FILE_BYTES + 6 * len(doc)
    tracemalloc.stop()
    messages = {problem.message for problem in caught.value.problems}
    assert any("unpacks to more than" in message for message in messages)
    assert any("not unpacked" in message for message in messages)


def test_gzip_files_are_bounded_together() -> None:
    half = {"path": "", "contents": packed(bytes(MAX_FILE_BYTES // 2))}
    files = [{**half, "path": f"/etc/{i}"} for i in range(9)]
    assert len(parse(text(with_files(*files[:8]))).files) == 8
    assert paths_of(with_files(*files)) == [f"{FILES}[8].contents.source"]


def test_the_last_of_repeated_keys_counts_in_json() -> None:
    """As for the API server. The daemon and the cluster must read the same config."""
    entry = file("/etc/a", "a", mode=0o600)
    once = text(with_files(entry))
    for first in ('"mode": 420', '"path": "/etc/b"', '"p\\u0061th": "/etc/b"', '"contents": {"source": "data:,b"}'):
        assert parse(once.replace(b'{"path"', b"{" + first.encode() + b', "path"')) == parse(once)
    for key in ("files", "storage", "config", "spec", "metadata", "ignition"):
        assert parse(once.replace(f'"{key}":'.encode(), f'"{key}": null, "{key}":'.encode(), 1)) == parse(once)
    # The second pass follows the same rule.
    with pytest.raises(InvalidInput) as caught:
        parse(once.replace(b'{"path"', b'{"mode": -1, "path": "x", "path"').replace(b'"data:,a"', b'"data:"'))
    assert [problem.path for problem in caught.value.problems] == [f"{FILES}[0].contents.source"]


def test_a_repeated_key_in_yaml_is_a_problem() -> None:
    with pytest.raises(InvalidInput, match="the key 'mode' is there twice"):
        parse(as_yaml(with_files(file(mode=420))).replace(b'"mode"', b'"mode": 420, "mode"'))


def test_source_text_with_colons_and_escapes() -> None:
    doc = with_files(
        {"path": "/etc/a:b", "contents": {"source": "data:text/plain;a=b,x:y::z"}}, file("/etc/é", "\\ü\n")
    )
    assert parsed(doc).files["/etc/a:b"].content == b"x:y::z"
    assert json.loads(text(doc)) == doc
    assert parse(json.dumps(doc, ensure_ascii=False).encode()) == parsed(doc)
    assert parse(json.dumps(doc, indent=3, separators=(" ,", "\n:")).encode()) == parsed(doc)


def test_base64_and_percent_and_gzip_of_the_same_bytes_are_equal() -> None:
    data = bytes(range(256))
    forms = [
        {"source": plain(data)},
        {"source": in_base64(data)},
        {"source": "data:;base64," + base64.b64encode(data).decode()},
        packed(data),
    ]
    configs = [parsed(with_files({"path": "/etc/a", "contents": form})) for form in forms]
    assert all(config == configs[0] for config in configs)


@pytest.mark.parametrize("section", ["files", "units", "dropins"])
def test_a_config_of_more_paths_than_can_be_applied_is_rejected(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MAX_PATHS", 5)

    def of(count: int) -> Doc:
        match section:
            case "files":
                return with_files(*({"path": f"/etc/f{index}"} for index in range(count)))
            case "units":
                return with_units(*({"name": f"u{index}.service", "enabled": True} for index in range(count)))
            case _:
                names = [{"name": f"{index}.conf", "contents": "[Unit]"} for index in range(count - 1)]
                return with_units({"name": "u.service", "dropins": names})

    assert parsed(of(5))
    wanted = Problem("spec.config", "has 6 files, units and drop-ins; at most 5 can be applied")
    assert problems(of(6)) == (wanted,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"variant: fcos\nversion: 1.5.0\npasswd: {}\n", "is a Butane config (variant: 'fcos'): run butane"),
        (b'{"ignition": {"version": "3.4.0"}, "storage": {}}', "is an Ignition config: put it below spec.config"),
        (b"apiVersion: v1\nkind: List\nitems:\n- kind: MachineConfig\n", "is a list of 1 objects: take one of them"),
        (
            b"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigList\nitems: []\n",
            "list of 0 objects",
        ),
    ],
)
def test_what_people_take_for_a_machine_config(text: bytes, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)) as caught:
        parse(text, "FILE")
    assert (caught.value.reason, caught.value.problems) == ("NotMachineConfig", ())
