# SPDX-License-Identifier: Apache-2.0
"""What libostree and rpm-ostree write to files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.host.ostree.vardict import Variant, boolean, device_and_inode, read_vardict, string, strings
from tests.support.vardict import vardict

# As GLib 2.74 serializes what libostree and rpm-ostree write.
STAGED = bytes.fromhex(
    "74617267657400006e616d65000000006162616261626162616261626162616261626162616261626162616261626162616261626162"
    "61626162616261626162616261626162616261626162616261622e300000730500006f736e616d6500006665646f72612d636f72656f"
    "730000730700000000000000626f6f746373756d00000000000000006364636463646364636463646364636463646364636463646364"
    "6364636463646364636463646364636463646364636463646364636463646364636463646364000073094e69c400617b73767d070000"
    "6c6f636b6564000001006207000000006b61726773000000726f6f743d4c4142454c3d726f6f7400717569657400101600617306d600"
    "e4000c01"
)
DRIVER = bytes.fromhex(
    "6472697665722d6e616d6500000000005a696e636174690000730c00000000006472697665722d73642d756e697400007a696e636174692e73"
    "6572766963650000730f1b43"
)


def test_reads_what_glib_writes() -> None:
    state = read_vardict(STAGED)
    assert list(state) == ["target", "locked", "kargs"]
    kind, target = state["target"]
    assert kind == "a{sv}"
    assert string(read_vardict(target)["osname"]) == "fedora-coreos"
    assert string(read_vardict(target)["name"]) == "ab" * 32 + ".0"
    assert boolean(state["locked"]) is True
    assert strings(state["kargs"]) == ("root=LABEL=root", "quiet")
    assert string(state["locked"]) is None
    driver = read_vardict(DRIVER)
    assert [string(driver[key]) for key in ("driver-name", "driver-sd-unit")] == ["Zincati", "zincati.service"]


TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=300)
VALUES = st.recursive(
    st.booleans() | TEXT | st.lists(TEXT, max_size=4),
    lambda inner: st.dictionaries(st.text("abc-", min_size=1), inner, max_size=4),
    max_leaves=8,
)


READ = {"b": boolean, "s": string, "as": lambda value: list(strings(value) or ())}


@settings(max_examples=40)
@given(st.dictionaries(st.text("abc-", min_size=1), VALUES, max_size=6))
def test_reads_every_dictionary(values: dict[str, Any]) -> None:
    def read(data: bytes) -> dict[str, Any]:
        got: dict[str, Any] = {}
        for key, value in read_vardict(data).items():
            got[key] = READ[value[0]](value) if value[0] != "a{sv}" else read(value[1])
        return got

    assert read(vardict(values)) == values


@given(st.binary(max_size=300) | st.integers(0, len(STAGED)).map(lambda n: STAGED[:n]))
def test_anything_else_is_a_value_error(data: bytes) -> None:
    try:
        for value in read_vardict(data).values():
            string(value)
            boolean(value)
            strings(value)
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("read", "data", "words"),
    [
        (string, b"abc", "a string without an end"),
        (string, b"", "a string without an end"),
        (strings, b"ab\0c\3\4", "a string without an end"),
        (strings, b"a\0b\0\4\2\4", "ends before it begins"),
        (boolean, b"\2", "neither true nor false"),
        (boolean, b"", "neither true nor false"),
    ],
)
def test_a_value_of_another_form(read: Callable[[Variant], object], data: bytes, words: str) -> None:
    kind = {string: "s", strings: "as", boolean: "b"}[read]
    with pytest.raises(ValueError, match=words):
        read((kind, data))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (b"", "an entry without an offset"),
        (b"key\0\0\0\0\0\1", "a string without an end"),
        (b"key\0\0\0\0\0\1\0\4", "a variant without a type"),
        (b"key\0\0\0\0\0\1\4", "a variant without a type"),
    ],
)
def test_an_entry_of_another_form(entry: bytes, words: str) -> None:
    good = b"key\0\0\0\0\0\1\0b\4"
    assert read_vardict(good + bytes([len(good)])) == {"key": ("b", b"\1")}
    with pytest.raises(ValueError, match=words):
        read_vardict(entry + bytes([len(entry)]))


def test_a_dictionary_of_another_form() -> None:
    entry = b"key\0\0\0\0\0\1\0b\4"
    with pytest.raises(ValueError, match="an entry ends before it begins"):
        read_vardict(entry + bytes([0, 0, 0, 0, 12, 5, 16]))
    with pytest.raises(ValueError, match="too large"):
        read_vardict(bytes((1 << 20) + 1))
    assert strings(None) is strings(("s", b"a\0")) is None


def test_numbers_of_a_device_and_an_inode() -> None:
    both = (7).to_bytes(8, "little") + (9).to_bytes(8, "little")
    assert device_and_inode(("(tt)", both)) == (7, 9)
    for other in (None, ("(tx)", both), ("(tt)", both[1:]), ("(tt)", both + b"\0")):
        assert device_and_inode(other) is None
