# SPDX-License-Identifier: Apache-2.0
"""Properties of any input: bytes, broken documents, and the same config written in different ways."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.parse import parse, parse_document
from nodeagent.core.config.text.document import load
from nodeagent.core.plan.change import ChangeKind
from nodeagent.core.plan.diff import diff
from nodeagent.core.plan.reconcile import check_reconcilable
from nodeagent.errors import InvalidInput, Problem
from tests.core.config.documents import Doc, as_yaml, document, in_base64, plain, text

NAMES = st.sampled_from(["a", "b.conf", "c", "ü"])
PATHS = st.lists(NAMES, min_size=1, max_size=2).map(lambda names: "/etc/" + "/".join(names))
BLOBS = st.sampled_from([b"", b"x", b"a\nb: c\n", "ü€".encode(), bytes(range(256)), b"=%:\\"])
MODES = st.sampled_from([None, 0o644, 0o600, 0o755])
OWNERS = st.sampled_from([None, {}, {"id": 0}, {"id": 1000}, {"name": "root"}, {"name": "core"}])
TEXTS = st.sampled_from([None, "", "[Unit]\nDescription=a: b\n", "x"])
FLAGS = st.sampled_from([None, True, False])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Doc]:
    """Objects where what is None is left out half of the time."""
    return st.tuples(st.fixed_dictionaries(fields), st.booleans()).map(
        lambda drawn: {key: value for key, value in drawn[0].items() if value is not None or drawn[1]}
    )


def unique(entries: st.SearchStrategy[Doc], key: str) -> st.SearchStrategy[list[Doc]]:
    return st.lists(entries, max_size=3, unique_by=lambda entry: entry[key])


FILES = unique(some(path=PATHS, data=BLOBS, mode=MODES, overwrite=FLAGS, user=OWNERS, group=OWNERS), "path").filter(
    lambda files: not any(a["path"].startswith(b["path"] + "/") for a in files for b in files)
)
DROPINS = unique(some(name=st.sampled_from(["a.conf", "b.conf"]), contents=TEXTS), "name")
UNITS = unique(
    some(name=st.sampled_from(["a.service", "b@.timer"]), contents=TEXTS, enabled=FLAGS, mask=FLAGS, dropins=DROPINS),
    "name",
)
USERS = unique(
    some(
        name=st.sampled_from(["core", "bob"]),
        sshAuthorizedKeys=st.lists(st.sampled_from(["k1", "k2"]), max_size=2, unique=True),
        passwordHash=st.sampled_from([None, "$6$a"]),
    ),
    "name",
)
LINKS = unique(some(path=st.sampled_from(["/l/1", "/l/2"]), target=st.sampled_from(["/x", "/y"])), "path")
SPECS = some(
    files=FILES,
    units=UNITS,
    users=USERS,
    links=LINKS,
    kernelArguments=st.lists(st.sampled_from(["a", "b=1 c", 'd="e f"']), max_size=3),
    extensions=st.lists(st.sampled_from(["usbguard", "kerberos"]), max_size=2),
    kernelType=st.sampled_from([None, "", "default", "realtime"]),
    fips=FLAGS,
    osImageURL=st.sampled_from([None, "", "quay.io/a@sha256:1"]),
)

ENCODERS = {
    "percent": lambda data: {"source": plain(data)},
    "all in percent": lambda data: {"source": "data:text/plain," + "".join(f"%{byte:02x}" for byte in data)},
    "base64": lambda data: {"source": in_base64(data), "verification": {}},
    "gzip": lambda data: {"source": in_base64(gzip.compress(data)), "compression": "gzip"},
}


def built(spec: Doc, encoder: str = "percent") -> Doc:
    """A document from the drawn parts; ``data`` of a file becomes its contents in one of the encodings."""
    files = [
        {"contents": ENCODERS[encoder](entry["data"]), **{key: value for key, value in entry.items() if key != "data"}}
        for entry in spec.get("files") or []
    ]
    config = {
        "storage": {"files": files, "links": spec.get("links")},
        "systemd": {"units": spec.get("units")},
        "passwd": {"users": spec.get("users")},
    }
    rest = {key: value for key, value in spec.items() if key not in ("files", "links", "units", "users")}
    return document(config, **rest)


CONFIGS = SPECS.map(lambda spec: parse_document(built(spec)))


SETS = ("files", "units", "users", "links", "dropins", "extensions")  # lists whose order says nothing


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same with the keys of every object, and what is a set, in another order."""
    if isinstance(value, dict):
        items = [(key, shuffled(item, rng)) for key, item in value.items()]
        rng.shuffle(items)
        for key, item in items:
            if key in SETS and item:
                rng.shuffle(item)
        return dict(items)
    return [shuffled(item, rng) for item in value] if isinstance(value, list) else value


WRITERS: dict[str, Callable[[Doc], bytes]] = {
    "compact": lambda doc: json.dumps(doc, separators=(",", ":")).encode(),
    "indented": lambda doc: json.dumps(doc, indent=1, ensure_ascii=False).encode(),
    "flow YAML": as_yaml,
    "block YAML": lambda doc: yaml.dump(doc, Dumper=yaml.CSafeDumper, allow_unicode=True).encode(),
}


@pytest.mark.parametrize("writer", WRITERS)
@settings(max_examples=30)
@given(SPECS, st.sampled_from(sorted(ENCODERS)), st.integers(0, 1000))
def test_every_way_of_writing_a_config_gives_the_same(writer: str, spec: Doc, encoder: str, seed: int) -> None:
    config = parse_document(built(spec))
    again = parse(WRITERS[writer](shuffled(built(spec, encoder), random.Random(seed))))
    assert again == config
    assert diff(config, again) == ()
    assert check_reconcilable(config, again) == ()


REVERSED = {
    ChangeKind.ADDED: ChangeKind.REMOVED,
    ChangeKind.REMOVED: ChangeKind.ADDED,
    ChangeKind.MODIFIED: ChangeKind.MODIFIED,
}


@settings(max_examples=50)
@given(CONFIGS, CONFIGS)
def test_diff_there_and_back(old: MachineConfig, new: MachineConfig) -> None:
    there, back = diff(old, new), diff(new, old)
    assert diff(old, old) == () == diff(new, new)
    assert there == tuple(sorted(there))
    assert len({change.id for change in there}) == len(there)
    assert [(c.domain, c.key, REVERSED[c.kind]) for c in there] == [(c.domain, c.key, c.kind) for c in back]


@settings(max_examples=50)
@given(CONFIGS, CONFIGS)
def test_equal_means_nothing_to_do(old: MachineConfig, new: MachineConfig) -> None:
    quiet = not diff(old, new) and not check_reconcilable(old, new)
    bare = {
        name: user
        for config in (old, new)
        for name, user in config.users.items()
        if user.ssh_keys or user.password_hash
    }
    if old.name == new.name and (bare or old.users == new.users):
        assert quiet == (old == new)


def outcome(written: bytes, *, typed: bool) -> MachineConfig | tuple[Problem, ...] | str:
    try:
        return parse(written, "x") if typed else parse_document(load(written, "x", unique_keys=False), "x")
    except InvalidInput as error:
        return error.problems or error.message


ODD = st.sampled_from(
    [b'"', b":", b",", b"{", b"}", b"[", b"]", b"\\", b"\\u003a", b"0", b"-", b"null", b"true", b"1e9", b" ", b"\0",
     b"\xff", b'"path":', b'"mode":', b'"files":[],', b'"name":"a"', b"data:", b"%", b"=", b"/", b"../", b"append",
     b"[[[[", b"NaN"]
)  # fmt: skip


@given(
    SPECS, st.sampled_from(sorted(ENCODERS)), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9), ODD), max_size=3)
)
def test_broken_documents_give_the_same_either_way(
    spec: Doc, encoder: str, edits: list[tuple[float, int, bytes]]
) -> None:
    """The typed decoder may only differ from the second pass in time, for any text."""
    written = text(built(spec, encoder))
    for place, cut, inserted in edits:
        start = int(place * len(written))
        written = written[:start] + inserted + written[start + cut :]
    assert outcome(written, typed=True) == outcome(written, typed=False)


@given(st.binary(max_size=300))
@example(b"{}")
@example(b"[]")
@example(b'{"spec": {"config": {"storage": {"files": [{}]}}}}')
@example(b'{"spec": {"config": {"storage": {"files": [{"path": "/a", "contents": null}]}}}}')
@example(b'{"spec": {"config": {"storage": {"files": {}}}}}')
def test_any_bytes_give_a_config_or_a_typed_error(written: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse(written)


JSON_DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50)
@given(SPECS, st.data())
def test_any_value_anywhere_gives_a_config_or_a_typed_error(spec: Doc, data: st.DataObject) -> None:
    doc = built(spec)
    target: Any = doc
    while True:
        keys = list(target) if isinstance(target, dict) else list(range(len(target)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(target[key], dict | list) or not target[key] or data.draw(st.booleans()):
            break
        target = target[key]
    target[key] = data.draw(JSON_DATA)
    written = json.dumps(doc).encode()
    assert outcome(written, typed=True) == outcome(written, typed=False)
