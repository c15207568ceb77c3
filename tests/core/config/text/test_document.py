# SPDX-License-Identifier: Apache-2.0
"""Untrusted bytes to plain data: what is read, what is refused, and that neither takes long or much."""

from __future__ import annotations

import json
import re
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.core.config.parse import parse
from nodeagent.core.config.text import document, yaml_document
from nodeagent.core.config.text.document import load
from nodeagent.core.config.text.limits import MAX_BYTES, MAX_DEPTH, MAX_NODES
from nodeagent.errors import InvalidInput

DEEP = MAX_DEPTH + 1

REFUSED = {
    "nothing": (b"", "is empty"),
    "white space": (b" \n\t ", "is empty"),
    "only a comment": (b"# nothing here\n", "is empty"),
    "NUL": (b'{"a": "\0"}', "NUL byte at offset 7"),
    "an ELF binary": (b"\x7fELF\x02\x01\x01\0\0", "NUL byte"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "NUL byte"),
    "Latin-1": (b'{"a": "\xe9"}', "not UTF-8 at offset 7"),
    "truncated JSON": (b'{"a": {"b": [1, 2', "not valid JSON: line 1 column"),
    "truncated JSON string": (b'{"a":\n "b', "line 2 column 2"),
    "text after JSON": (b'{"a": 1} x', "Extra data"),
    "two JSON documents": (b'{"a": 1}\n{"a": 2}', "Extra data"),
    "a JSON control character": (b'{"a": "\x01"}', "not valid JSON"),
    "deep JSON": (b'[{"a":' * 10_000, "too deep"),
    "deep JSON, closed": (b"[" * DEEP + b"]" * DEEP, f"deeper than {MAX_DEPTH} levels"),
    "very deep JSON": (b"[" * 1_000_000, "too deep"),
    "NaN": (b'{"a": NaN}', "a: the number is not finite"),
    "Infinity": (b'{"a": [-Infinity]}', "a[0]: the number is not finite"),
    "a number out of range": (b'{"a": 1e999}', "a: the number is not finite"),
    "a huge integer": (b'{"a": 9223372036854775808}', "a: the integer does not fit into 64 bits"),
    "an integer of a million digits": (b'{"a": ' + b"9" * 1_000_000 + b"}", "4300 digits"),
    "half a character": (b'{"a": "\\ud800"}', "a: half of a surrogate pair"),
    "half a character in a key": (b'{"\\ud800": 1}', "half of a surrogate pair in the key"),
    "a JSON key twice": (b'{"a": {"b": [{"k": 1, "k": 1}]}}', "a.b[0]: the key 'k' occurs twice"),
    "truncated YAML": (b'a: {b: [1, "2', "not valid YAML: line 1 column"),
    "YAML with tabs": (b"a:\n\t- b\n", "line 2 column 1"),
    "a YAML control character": (b"a: \x01\n", "not valid YAML"),
    "two YAML documents": (b"a: 1\n---\na: 2\n", "line 2 column 1: there is more than one document"),
    "two YAML documents and an empty one": (b"---\na: 1\n---\n---\n[]\n", "line 4 column 1: there is more than one"),
    "a YAML key twice": (b"a:\n  b: 1\n  b: 2\n", "a: line 3 column 3: the key 'b' occurs twice"),
    "a YAML key twice in flow style": (b"a: [{k: 1, 'k': 2}]", "a[0]: line 1 column 12: the key 'k' occurs twice"),
    "a number as key": (b"1: a\n", "line 1 column 1: the key '1' must be a string: put it in quotes"),
    "a boolean as key": (b"a: {on: 1}\n", "the key 'on' must be a string"),
    "null as key": (b"~: 1\n", "the key '~' must be a string"),
    "a list as key": (b"? [a]\n: 1\n", "a key must be a string"),
    "a mapping as key": (b"{a: 1}: 1\n", "a key must be a string"),
    "an anchor": (b"a: &x 1\n", "line 1 column 4: anchors are not read"),
    "an alias": (b"a: *x\n", "line 1 column 4: aliases are not read"),
    "a merge key": (b"a: {<<: {b: 1}}\n", "merge keys are not read"),
    "a tag": (b"a: !!str 1\n", "tags are not read"),
    "a Python tag": (b"!!python/object/apply:os.system ['true']\n", "tags are not read"),
    "binary by tag": (b"a: !!binary aGk=\n", "tags are not read"),
    "deep YAML": (b"a: " + b"[" * DEEP, "deeper than"),
    "deep YAML by indentation": ("".join(f"{' ' * i}a:\n" for i in range(DEEP + 1)).encode(), "deeper than"),
    "YAML infinity": (b"a: .inf\n", "a: the number is not finite"),
    "YAML not a number": (b"a: [.NaN]\n", "a[0]: the number is not finite"),
    "a YAML number out of range": (b"a: 1e999\n", "not finite"),
    "a huge YAML integer": (b"a: 0xffffffffffffffff\n", "64 bits"),
    "a YAML integer of very many digits": (b"a: 1" + b"0" * 500_000, "too long"),
}


@pytest.mark.parametrize("parser", ["libyaml", "pure"])
@pytest.mark.parametrize(
    ("text", "data"),
    [
        (b"a: &x 1\nb: *x\n", {"a": 1, "b": 1}),
        (
            b"a: &x {b: [1, &y two]}\nc: *x\nd: [*y, *x]\n",
            {"a": {"b": [1, "two"]}, "c": {"b": [1, "two"]}, "d": ["two", {"b": [1, "two"]}]},
        ),
        (b"a: &x []\nb: &x {}\nc: *x\n", {"a": [], "b": {}, "c": {}}),
        (b"a: &x [1]\nb: &y [*x, *x]\nc: *y\n", {"a": [1], "b": [[1], [1]], "c": [[1], [1]]}),
        (b"&x a: 1\nb: *x\n", {"a": 1, "b": "a"}),
    ],
)
def test_aliases_are_read_for_a_program_that_reads_them(
    parser: str, text: bytes, data: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if parser == "pure":
        monkeypatch.setattr(yaml_document, "_Loader", None)
    assert load(text, "it", aliases=True) == data
    copied = load(text, "it", aliases=True)
    assert isinstance(copied, dict)
    parts = [id(part) for part in copied.values() if isinstance(part, dict | list)]
    assert len(parts) == len({*parts}), "no value is shared"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a: *x\n", "line 1 column 4: the alias has no value"),
        (b"a: &x [*x]\n", "line 1 column 8: the alias has no value"),
        (b"a: &x {b: &x [*x]}\n", "the alias has no value"),
        (b"a: &x 1\n---\nb: *x\n", "there is more than one document"),
        (b"a: &x {b: 1}\nc: {<<: *x}\n", "merge keys are not read"),
        (b"a: &x [1]\n*x : 1\n", "a key must be a string"),
        (b"a: &x !!str 1\nb: *x\n", "tags are not read"),
        (
            "".join(
                ["a0: &a0 [1, 1, 1, 1]\n", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))]
            ).encode(),
            "its aliases have too many values",
        ),
        (
            "".join(["a0: &a0 [1]\n", *(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, DEEP + 1))]).encode(),
            f"deeper than {MAX_DEPTH} levels",
        ),
    ],
    ids=[
        "unknown",
        "in itself",
        "in itself, named again",
        "another document",
        "a merge key",
        "a key",
        "a tag",
        "values",
        "depth",
    ],
)
def test_aliases_are_bounded(text: bytes, words: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match=re.escape(words)):
            load(text, "it", aliases=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("parser", ["libyaml", "pure"])
def test_is_refused_with_a_reason(case: str, parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if parser == "pure":
        monkeypatch.setattr(yaml_document, "_Loader", None)
    text, why = REFUSED[case]
    with pytest.raises(InvalidInput) as caught:
        load(text, "x.yaml")
    assert why in caught.value.message
    assert caught.value.message.startswith("x.yaml ")
    assert len(caught.value.message) < 400


READ = {
    b'{"a": [1, -2, 1.5, true, null, "x", {}]}': {"a": [1, -2, 1.5, True, None, "x", {}]},
    b'\xef\xbb\xbf{"a": 1}': {"a": 1},
    b"\xef\xbb\xbfa: 1": {"a": 1},
    b' \n{ "a": "\\u00e9\\ud83d\\ude00" }': {"a": "é😀"},
    '{"a": "é"}'.encode(): {"a": "é"},
    b"[]": [],
    b"{}": {},
    b"{a: 1, 'b': \"2\"}": {"a": 1, "b": "2"},
    b"---\na: 1\n...\n": {"a": 1},
    b"%YAML 1.1\n---\na: b": {"a": "b"},
    b"a: |\n  x\n  y\n": {"a": "x\ny\n"},
    b"a: >-\n  x\n  y\n": {"a": "x y"},
    b"- a\n-\n- ~\n- null\n- ''\n": ["a", None, None, None, ""],
    b"just text": "just text",
    b"9223372036854775807": 2**63 - 1,
}


@pytest.mark.parametrize("text", READ)
def test_is_read(text: bytes) -> None:
    assert load(text, "x") == READ[text]


# What YAML 1.1 makes of plain scalars, as far as the tools agree that turn YAML into JSON. Nothing becomes a date or
# a number of base 60: those would be a name or a port to every other parser.
SCALARS = {
    "0644": 0o644,
    "0o644": 0o644,
    "420": 420,
    "+1": 1,
    "-0x1F": -31,
    "0b101": 5,
    "1_000": 1000,
    "0": 0,
    "1.5": 1.5,
    ".5": 0.5,
    "1.": 1.0,
    "1e3": 1000.0,
    "-1.5E-3": -0.0015,
    "true": True,
    "Yes": True,
    "on": True,
    "FALSE": False,
    "no": False,
    "Off": False,
    "y": "y",
    "n": "n",
    "~": None,
    "NULL": None,
    "1:20": "1:20",
    "190:20:30": "190:20:30",
    "2001-12-14": "2001-12-14",
    "2001-12-14T21:59:43Z": "2001-12-14T21:59:43Z",
    "0899": "0899",
    "0x": "0x",
    "0b_": "0b_",
    "1.2.3": "1.2.3",
    "+": "+",
    ".": ".",
    "=": "=",
    "-x": "-x",
    "3.2.0": "3.2.0",
}


@pytest.mark.parametrize("word", SCALARS)
def test_plain_scalar(word: str) -> None:
    value = load(f"a: {word}\n".encode(), "x")
    assert value == {"a": SCALARS[word]}
    assert type(value["a"]) is type(SCALARS[word])
    assert load(f"a: '{word}'\n".encode(), "x") == {"a": word}


@pytest.mark.parametrize("parser", [b"", b"--- "], ids=["json", "yaml"])
def test_long_keys_do_not_multiply(parser: bytes) -> None:
    """The path of a value is as long as all keys above it; there must not be one for each value."""
    text = b'{"%s": {"%s": [%s]}}' % (b"k" * 1000, b"l" * 1000, b",".join([b'{"m": 9e999}'] * 5000))
    load(b"a: 1", "warm")
    tracemalloc.start()
    with pytest.raises(InvalidInput) as caught:
        load(parser + text, "x")
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    assert caught.value.problems[0].path == "k" * 100 + "…." + "l" * 100 + "…[0].m"


def test_all_problems_of_a_document_come_together() -> None:
    with pytest.raises(InvalidInput) as caught:
        load(b'{"a": NaN, "b": {"c": 1, "c": 2}, "d": ["\\udc00"]}', "x")
    assert [p.path for p in caught.value.problems] == ["a", "b", "d[0]"]


def test_size_is_refused_before_anything_is_looked_at() -> None:
    text = bytes(100 * 1024 * 1024)
    tracemalloc.start()
    with pytest.raises(InvalidInput, match="104857600 bytes; at most"):
        load(text, "x")
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"[]," * (MAX_NODES + 1) + b"[]]",
        b'[{"a":1}' + b',{"a":1}' * (MAX_NODES // 2 + 1) + b"]",
        b'{"spec":{"config":{"storage":{"files":[' + b'{"path":"/a"},' * (MAX_NODES // 2 + 1) + b"{}]}}}}",
        b"- [" + b"a," * (MAX_NODES + 1) + b"]",
    ],
    ids=["lists", "objects", "files", "yaml"],
)
def test_more_values_than_memory_is_for(text: bytes) -> None:
    for read in (load, parse):
        with pytest.raises(InvalidInput, match=f"more than {MAX_NODES} values"):
            read(text[:MAX_BYTES], "x")


def test_commas_in_strings_are_no_values() -> None:
    text = json.dumps({"a": "," * (2 * MAX_NODES), "b": '\\"[' * 1000}).encode()
    assert load(text, "x") == json.loads(text)


def test_yaml_bomb_takes_no_memory() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    load(b"a: 1", "warm")
    tracemalloc.start()
    with pytest.raises(InvalidInput, match="anchors are not read"):
        load("\n".join(levels).encode(), "x")
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_without_libyaml_less_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_document, "_Loader", None)
    assert load(b"a: [1, {b: c}]", "x") == {"a": [1, {"b": "c"}]}
    with pytest.raises(InvalidInput, match="without libyaml"):
        load(b"a: " + b"x" * yaml_document.MAX_SLOW_BYTES, "x")


@pytest.mark.parametrize("text", [b'{"a"', b' \n{"', b"{}", b"[", b"{ }", b"\t[1]"])
def test_must_be_json(text: bytes) -> None:
    assert document.is_json(text)


@pytest.mark.parametrize("text", [b"a: 1", b"{a: 1}", b"# {", b"---\n{}", b"'{\"a\"'"])
def test_may_be_yaml(text: bytes) -> None:
    assert not document.is_json(text)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@example(b"? ")
@example(b"- - - -")
@example(b"{? a: b}")
@example(b"\xc2\x85")
@example(b"%TAG ! x\n--- !a b")
def test_any_bytes_give_data_or_a_typed_error(text: bytes) -> None:
    try:
        load(text, "x")
    except InvalidInput as error:
        assert error.message


JSON_DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON_DATA, st.sampled_from([None, 2]))
def test_json_is_read_as_json_loads_does(data: object, indent: int | None) -> None:
    text = json.dumps(data, indent=indent).encode()
    if document.is_json(text):
        assert load(text, "x") == data


@pytest.mark.finding("configs: documents and types", "An empty document beside the only one is no document.")
@pytest.mark.parametrize(
    "text", [b"a: 1\n---\n", b"---\n---\na: 1\n", b"a: 1\n---\n# nothing\n...\n---\n", b"---\na: 1\n..."]
)
def test_empty_documents_do_not_count(text: bytes) -> None:
    assert load(text, "it") == {"a": 1}
