# SPDX-License-Identifier: Apache-2.0
"""The file of the admin: what is accepted, and what is refused with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.errors import Refused
from nodeagent.features.update_graph.decide.declared import BUILT_IN, UpdatePath, parse_update_path

GOOD = b"""
barriers:
- version: 42.20250331.3.0
  reason: the bootloader must be updated first
minimum:
- {to: "44", booted: "43.20250901.3.0"}
requirements:
- name: no-old-argument
  to: "43"
  must: not-have
  kernel_arguments: [elevator=noop]
  then: remove it
- name: new-network
  to: "43"
  os: [fedora]
  must: have
  files: [/etc/NetworkManager/system-connections/*.nmconnection]
  line: "[connection]"
  then: convert it
images:
  sha256:%s: 42.20250401.3.0
skip: [ifcfg-el10]
""" % (b"a" * 64)


def test_a_whole_file() -> None:
    found = parse_update_path(GOOD)
    assert [each.version for each in found.barriers] == ["42.20250331.3.0"]
    names = [each.name for each in found.all_requirements()]
    assert names[-2:] == ["no-old-argument", "new-network"]
    assert "ifcfg-el10" not in names
    assert len(names) == len(BUILT_IN) + 1


def requirement(**more: str) -> bytes:
    given = {"name": "x", "to": '"1"', "must": "have", "then": "do it", "cpu_flags": "[avx]", **more}
    return ("requirements: [{" + ", ".join(f"{key}: {value}" for key, value in given.items() if value) + "}]").encode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"barrier: []", "unknown field `barrier`"),
        (b"barriers: [{version: 41}]", "Expected `str`, got `int` - at `$.barriers[0].version`"),
        (b'barriers: [{version: "a b"}]', "matching regex"),
        (b'barriers: [{version: "1", why: x}]', "unknown field `why`"),
        (b'minimum: [{to: "42", booted: "42"}]', "booted 42 is not below to 42"),
        (b'minimum: [{to: "42", booted: "42.1"}]', "booted 42.1 is not below to 42"),
        (b"images: {latest: '1'}", "matching regex"),
        (b"skip: [runc]", "no built-in requirement has the name runc"),
        (requirement(must="maybe"), "Invalid enum value 'maybe'"),
        (requirement(name="runc-el10"), "the name runc-el10 is used twice, or built in"),
        (requirement(cpu_flags=""), "needs one of kernel_arguments, files and cpu_flags"),
        (requirement(files="[/etc/x]"), "needs one of kernel_arguments, files and cpu_flags"),
        (requirement(line="x"), "has a line, but no files"),
        (requirement(cpu_flags="", files="[etc/x]"), "matching regex"),
        (requirement(cpu_flags="", files="[/etc/*/x]"), "matching regex"),
        (requirement(then=""), "missing required field `then`"),
        (b"[1]", "Expected `object`, got `array`"),
        (b"a: [", "update-path.yaml"),
        (b"barriers: [" + b'{version: "1"},' * 501 + b"]", "length <= 500"),
    ],
)
def test_a_bad_file_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_update_path(text)
    assert caught.value.reason == "UpdatePathInvalid"
    assert why in caught.value.message


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    try:
        assert isinstance(parse_update_path(text), UpdatePath)
    except Refused as error:
        assert error.reason == "UpdatePathInvalid"
