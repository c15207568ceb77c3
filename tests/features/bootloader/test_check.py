# SPDX-License-Identifier: Apache-2.0
"""The JSON of bootupd, and the order of versions.

The files in ``bootupd`` are what bootupd 0.2.35 printed for a state and a payload, in a directory of its own root.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.features.bootloader.decide.check import (
    MAX_JSON,
    BootloaderContent,
    BootloaderState,
    compare,
    parse_payload,
    parse_status,
    version_parts,
)

PRINTED = Path(__file__).parent / "bootupd_status"
OLD = {"timestamp": "2024-06-01T00:00:00Z", "version": "grub2-efi-x64-1:2.06-95.fc38.x86_64,shim-x64-15.6-2.x86_64"}
NEW = {
    "timestamp": "2026-06-01T00:00:00Z",
    "version": "grub2-1:2.12-41.fc44,shim-16.1-3",
    "versions": [{"name": "grub2", "rpm_evr": "1:2.12-41.fc44"}, {"name": "shim", "rpm_evr": "16.1-3"}],
}


def content(**packages: str) -> BootloaderContent:
    return BootloaderContent(",".join(packages.values()), tuple(sorted(packages.items())))


@pytest.mark.parametrize(
    ("name", "state", "adoptable"),
    [
        ("adoptable", None, {"EFI"}),
        ("older", BootloaderState.OLDER, set()),
        ("older-and-bios", BootloaderState.OLDER, {"BIOS"}),
        ("downgrade", BootloaderState.NEWER, set()),
        ("no-update", BootloaderState.NEWER, set()),
    ],
)
def test_what_bootupd_prints(name: str, state: BootloaderState | None, adoptable: set[str]) -> None:
    found = parse_status((PRINTED / f"{name}.json").read_bytes())
    assert found.adoptable == adoptable
    payload = parse_payload(json.dumps(NEW).encode())
    assert {key: compare(value, payload) for key, value in found.installed.items()} == ({"EFI": state} if state else {})


def test_the_same_is_the_same_in_both_forms() -> None:
    text = {"version": "grub2-efi-x64-1:2.12-41.fc44.x86_64,shim-x64-16.1-3.x86_64"}
    assert compare(parse_payload(json.dumps(text).encode()), parse_payload(json.dumps(NEW).encode())) == "same"
    assert compare(parse_payload(json.dumps(OLD).encode()), parse_payload(json.dumps(NEW).encode())) == "older"


def test_an_unknown_key_is_ignored_and_interrupted_is_not_read() -> None:
    entry = {"installed": {**NEW, "new": [1]}, "interrupted": OLD, "update": None, "updatable": "soon", "more": {}}
    found = parse_status(json.dumps({"components": {"EFI": entry}, "adoptable": {}, "later": 1}).encode())
    assert found.installed["EFI"] == parse_payload(json.dumps(NEW).encode())


BAD: list[Any] = [
    None,
    [],
    {},
    {"components": ["EFI"]},
    {"components": {"EFI": None}},
    {"components": {"EFI": {}}},
    {"components": {"EFI": {"installed": {"version": 1}}}},
    {"components": {"EFI": {"installed": {"version": ""}}}},
    {"components": {"EFI": {"installed": {"version": "a", "versions": "b"}}}},
    {"components": {"EFI": {"installed": {"version": "a", "versions": [{"name": "b"}]}}}},
    {"components": {}, "adoptable": []},
]


@pytest.mark.parametrize("document", BAD)
def test_another_form_is_a_value_error(document: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_status(json.dumps(document).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"[" * 200_000, b'{"components":' * 20_000, b" " * (MAX_JSON + 1), b"error: x"]
)
def test_no_json_is_a_value_error(data: bytes) -> None:
    for parse in (parse_status, parse_payload):
        with pytest.raises(ValueError, match=r".+"):
            parse(data)
    with pytest.raises(ValueError, match=r".+"):
        parse_status((PRINTED / "container.json").read_bytes())


@given(st.binary(max_size=300) | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_any_text_is_parsed_or_a_value_error(data: bytes | str) -> None:
    for parse in (parse_status, parse_payload):
        try:
            parse(data if isinstance(data, bytes) else data.encode())
        except ValueError:
            continue


# Each line in ascending order.
ORDER = [
    ["15.8~rc1-1", "15.8", "15.8-1", "15.8-2", "15.8-10", "15.8^git1-1", "15.8.1-1", "16"],
    ["1:2.06-1", "1:2.12-28.fc41", "1:2.12-28.fc42", "1:2.12-41.fc42"],
    ["1:2.12-1", "2:0-1"],
]


@pytest.mark.parametrize("versions", ORDER)
def test_the_order_of_versions(versions: list[str]) -> None:
    for at, left in enumerate(versions):
        for other, right in enumerate(versions):
            assert (version_parts(left) < version_parts(right)) == (at < other), (left, right)
            assert (version_parts(left) == version_parts(right)) == (at == other), (left, right)


@given(st.text("019.-~^:ab", max_size=8), st.text("019.-~^:ab", max_size=8))
def test_versions_have_one_order(a: str, b: str) -> None:
    one, other = version_parts(a), version_parts(b)
    assert [one < other, one == other, one > other].count(True) == 1


@pytest.mark.parametrize(
    ("installed", "available", "state"),
    [
        (content(grub2="2", shim="1"), content(grub2="1", shim="2"), BootloaderState.OLDER),
        (content(grub2="2", shim="1"), content(grub2="1", shim="1"), BootloaderState.NEWER),
        (content(grub2="1"), content(grub2="1", shim="1"), BootloaderState.OLDER),
        (content(grub2="1", shim="1"), content(grub2="1"), BootloaderState.NEWER),
        (content(grub2="1", shim="1"), content(grub2="1", shim="1"), BootloaderState.SAME),
    ],
)
def test_one_older_package_is_enough(
    installed: BootloaderContent, available: BootloaderContent, state: BootloaderState
) -> None:
    assert compare(installed, available) is state
