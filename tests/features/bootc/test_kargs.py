# SPDX-License-Identifier: Apache-2.0
"""The kernel arguments of an image, as bootc 1.16 reads and applies them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config.kargs import MAX_LENGTH, split
from nodeagent.features.bootc.decide.kargs import (
    MAX_BYTES,
    MAX_FILES,
    BadKargs,
    ImageArguments,
    image_arguments,
    with_image,
)

# Of bootc's own tests.
TWO = b'kargs = ["console=tty0", "nosmt"]\n'


def of(*tokens: str) -> ImageArguments:
    return ImageArguments(tokens, present=True)


@pytest.mark.parametrize(
    ("files", "machine", "tokens"),
    [
        ({}, "x86_64", ()),
        ({"somegarbage": b"garbage"}, "x86_64", ()),
        ({".toml": b"garbage", "README.TOML": b"garbage"}, "x86_64", ()),
        ({"02-bar.toml": b'kargs = ["console=ttyS1"]', "01-foo.toml": TWO}, "x86_64",
         ("console=tty0", "nosmt", "console=ttyS1")),
        ({"b.toml": b'kargs = ["b"]', "B.toml": b'kargs = ["B"]', "10.toml": b'kargs = ["10"]',
          "9.toml": b'kargs = ["9"]'}, "x86_64", ("10", "9", "B", "b")),
        ({"a.toml": TWO + b'match-architectures = ["x86_64"]'}, "aarch64", ()),
        ({"a.toml": TWO + b'match-architectures = ["x86_64", "aarch64"]'}, "aarch64", ("console=tty0", "nosmt")),
        ({"a.toml": TWO + b"match-architectures = []"}, "x86_64", ()),
        # Names of Rust.
        ({"a.toml": TWO + b'match-architectures = ["powerpc64"]'}, "ppc64le", ("console=tty0", "nosmt")),
        ({"a.toml": TWO + b'match-architectures = ["s390x"]'}, "s390x", ("console=tty0", "nosmt")),
        # An entry is split, and a quote may last over two of them.
        ({"a.toml": b"kargs = ['a  b=\"x y\" ', '', 'c=\"d', 'e\"']"}, "x86_64", ("a", 'b="x y"', 'c="d e"')),
        # Each once, in one file and in all.
        ({"a.toml": b'kargs = ["a", "b-c=1", "a"]', "b.toml": b"kargs = ['b_c=\"1\"', 'a', 'a=']"}, "x86_64",
         ("a", "b-c=1", "a=")),
        ({"a.toml": b'kargs = ["ostree=/ostree/boot.0/x", "a"]'}, "x86_64", ("a",)),
    ],
)  # fmt: skip
def test_the_arguments_of_an_image(files: Mapping[str, bytes], machine: str, tokens: Sequence[str]) -> None:
    assert image_arguments(files, machine) == of(*tokens)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'kargs = ["a"]\\nfoo=bar', "is no TOML"),
        (b"kargs = " + b"[" * 10_000, "is no TOML"),
        (b"\xff", "is no TOML"),
        (b'foo = "bar"', "has the unknown key 'foo'"),
        (b'match-architectures = ["x86_64"]', "has no kargs"),
        (b'kargs = "a"', "kargs in usr/lib/bootc/kargs.d/a.toml is no list of texts"),
        (b"kargs = [1]", "is no list of texts"),
        (TWO + b'match-architectures = "x86_64"', "match-architectures in"),
        (b"kargs = ['a=\"b']", "has an unpaired double quote"),
        (b'kargs = ["a\\u0000"]', "has control characters"),
        (b"#" * (MAX_BYTES + 1), f"has more than {MAX_BYTES} bytes"),
        (b'kargs = ["' + b"x" * (MAX_LENGTH + 1) + b'"]', f"has more than {MAX_LENGTH} characters"),
    ],
)  # fmt: skip
def test_files_that_are_refused(text: bytes, message: str) -> None:
    with pytest.raises(BadKargs) as refused:
        image_arguments({"a.toml": text}, "x86_64")
    assert message in str(refused.value)


def test_too_many_files_are_refused() -> None:
    files = {f"{number}.toml": b"kargs = []" for number in range(MAX_FILES)}
    assert image_arguments({**files, "README": b""}, "x86_64") == of()
    with pytest.raises(BadKargs):
        image_arguments({**files, "more.toml": b"kargs = []"}, "x86_64")


NONE = ImageArguments()


@pytest.mark.parametrize(
    ("line", "old", "new", "result"),
    [
        ("root=UUID=1 rw local=1", NONE, NONE, "root=UUID=1 rw local=1"),
        ("rw local=1", NONE, of("a", "b=1"), "rw local=1 a b=1"),
        # Those of the old image, one of which the new one lacks.
        ("a rw b=1 local=1", of("a", "b=1"), of("b=1", "c"), "rw b=1 local=1 c"),
        # Another value is another argument.
        ("console=tty0 rw", of("console=tty0"), of("console=ttyS0"), "rw console=ttyS0"),
        ("console=tty0 rw", of("console=tty0"), of("console=tty0", "console=ttyS0"), "console=tty0 rw console=ttyS0"),
        # An admin took it out: it does not come back before an image without it.
        ("rw", of("a"), of("a"), "rw"),
        ("rw", of("a"), of(), "rw"),
        # An admin had it, too: it is there once, and leaves with the image.
        ("rw a", of(), of("a"), "rw a"),
        ("a rw a", of("a"), of(), "rw"),
        # Without the directory nothing is taken out, and what was taken out comes back.
        ("rw a", of("a", "b"), NONE, "rw a b"),
        ("rw a", of("a"), of(), "rw"),
        # Spelled in another way.
        ('module-x.y="1" rw', of("module_x.y=1"), of(), "rw"),
        ('"a=b c" rw', of('a="b c"'), of(), "rw"),
        ("a-b=1", of("a_b=1"), of("a-b=1"), "a-b=1"),
        ("ostree=/ostree/boot.1/x rw", NONE, of("a"), "rw a"),
    ],
)
def test_the_line_of_a_deployment(line: str, old: ImageArguments, new: ImageArguments, result: str) -> None:
    assert " ".join(with_image(line.split(" ") if '"a' not in line else split(line), old, new)) == result


TOKENS = st.sampled_from(["a", "a=", "a=1", 'a="1"', "a-b=1", "a_b=1", 'c="x y"', '"c=x y"', "d=2", "local=1", "rw"])
LINES = st.lists(TOKENS, max_size=6).map(tuple)
IMAGES = st.one_of(st.just(NONE), LINES.map(lambda tokens: image_arguments(_file(tokens), "x86_64")))


def _file(tokens: Sequence[str]) -> Mapping[str, bytes]:
    # A list of texts is the same in JSON and in TOML.
    return {"a.toml": f"kargs = {json.dumps(tokens)}".encode()}


@given(LINES, IMAGES, IMAGES)
def test_arguments_of_the_host_remain(line: Sequence[str], old: ImageArguments, new: ImageArguments) -> None:
    result = with_image(line, old, new)
    appended = [token for token in result if token not in line]
    assert [token for token in line if token in result] == list(result[: len(result) - len(appended)])
    known = set(image_arguments(_file([*old.tokens, *line]), "x86_64").tokens[len(old.tokens) :])
    assert known <= set(result), "what no image brought is not taken out"


@given(LINES, IMAGES, IMAGES)
def test_the_same_image_again_changes_nothing(line: Sequence[str], old: ImageArguments, new: ImageArguments) -> None:
    result = with_image(line, old, new)
    if new.present:
        assert with_image(result, new, new) == result


@given(LINES, IMAGES)
def test_there_and_back(line: Sequence[str], new: ImageArguments) -> None:
    """An image that adds and one that takes out leave the host's own, except those that the image has as well."""
    empty = of()
    back = with_image(with_image(line, empty, new), new, empty)
    assert back == with_image(line, new if new.present else empty, empty)


@given(LINES)
def test_reading_is_idempotent(tokens: Sequence[str]) -> None:
    once = image_arguments(_file(tokens), "x86_64")
    assert image_arguments(_file(once.tokens), "x86_64") == once


@given(st.binary(max_size=200))
def test_each_file_is_read_or_refused(text: bytes) -> None:
    try:
        arguments = image_arguments({"a.toml": text}, "x86_64")
    except BadKargs:
        return
    assert all(token and split(token) == [token] for token in arguments.tokens)
