# SPDX-License-Identifier: Apache-2.0
"""``storage.files``: contents, modes, owners, and every invalid entry."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import tracemalloc
from typing import Any

import pytest

from nodeagent.core.config.machineconfig import FileEntry
from nodeagent.core.config.parse import parse
from nodeagent.core.config.text.data_url import MAX_FILE_BYTES
from nodeagent.errors import InvalidInput
from tests.core.config.documents import (
    FILES,
    A,
    Doc,
    as_yaml,
    file,
    in_base64,
    packed,
    parsed,
    paths_of,
    plain,
    problems,
    text,
    with_files,
)


def only_file(doc: Doc) -> FileEntry:
    (entry,) = parsed(doc).files.values()
    return entry


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


@pytest.mark.parametrize(
    ("mode", "advice"),
    [
        (644, "write 0644 (420 in JSON)"),
        (777, "write 0777 (511 in JSON)"),
        # Of Git.
        (100644, "write 0644 (420 in JSON)"),
        (688, ""),
        (1000, ""),
        (0o4755, ""),
    ],
)
def test_the_remedy_for_a_mode_without_its_zero(mode: int, advice: str) -> None:
    (problem,) = problems(with_files({"path": "/etc/a", "contents": None, "mode": mode}))
    assert f"invalid mode 0{mode:o}" in problem.message
    assert advice in problem.message
    assert ("decimal" in problem.message) is bool(advice)


def test_mode_in_yaml_is_octal_with_a_leading_zero() -> None:
    doc = as_yaml(with_files(file())).replace(b'"path"', b'"mode": 0640, "path"')
    assert parse(doc).files["/etc/a"].mode == 0o640


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
        ".contents.source", "compression is gzip, but the content is not compressed",
    ),
    "damaged gzip": (
        {"path": "/a", "contents": {"source": in_base64(b"\x1f\x8b" + b"x" * 40), "compression": "gzip"}},
        ".contents.source", "gzip stream is damaged",
    ),
    "key of Ignition 2": ({"path": "/a", "filesystem": "root"}, "", "it is of Ignition 2, delete it"),
    "key of Butane": ({"path": "/a", "contents": {"inline": "x"}}, ".contents", "it is of Butane"),
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
    "append of Ignition 2": ({"path": "/a", "append": True}, ".append", "that is of Ignition 2, list what is appended"),
}  # fmt: skip


@pytest.mark.finding(
    "configs: each wrong value, configs: keys of another format",
    "Each wrong value of a file is named with what is wrong.",
)
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
