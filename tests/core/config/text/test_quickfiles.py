"""The short way for the files of a JSON config: the same result as the long one, or the same errors."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.parse import Cache, parse, parse_document
from nodeagent.core.config.text import jsondoc
from nodeagent.core.config.text.document import load
from nodeagent.errors import InvalidInput, Problem

USUAL = [
    '{"path":"/etc/a","contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","contents":{"source":"data:,b:c"},"mode":420}',
    '{"path":"/etc/b:c","contents":{"source":"data:;base64,aGk="},"mode":384,"overwrite":true}',
    '{"path":"/etc/b","contents":{"source":"data:text/plain;charset=utf-8;base64,","verification":{}}}',
    '{ "mode" : 0 , "path" : "/etc/c" , "contents" : { "compression" : "" , "source" : "data:,%41=%3d%00:" } }',
    '{"path":"/etc/d/e","contents":{"source":"data:,"},"user":{},"group":{"name":"root"},"overwrite":false}',
    '{"path":"/etc/d/f","contents":{"source":"data:,a"},"user":{"id":7},"group":{"id":0,"name":""}}',
    '{"path":"/etc/a/below","contents":{"source":"data:,a"}}',
    '{"path":"/etc/d","contents":{"source":"data:,a"}}',
]
LEFT = [
    '{"path":"/etc/a","contents":{"source":"data:,a"},"mode":null}',
    '{"path":"/etc/a","contents":{"source":"data:;base64,\\u0061Gk="}}',
    '{"path":"/etc/a"}',
    '{"path":"/etc/a","contents":null}',
    '{"path":"/etc/a","contents":{}}',
    '{"path":"/etc/b","contents":{"source":null}}',
    '{"path":"/etc/b","contents":{"source":""}}',
    '{"path":"/etc/c","contents":{"source":"data:,a"},"user":{"name":"core"}}',
    '{"path":"/etc/d/e","contents":{"source":"data:text/plain;a=\\"b,c\\",d"}}',
    '{"path":"/etc/d/f","contents":{"source":"data:;base64,H4sIAAAAAAACA0tMSgYAwkEkNQMAAAA=","compression":"gzip"}}',
    '{"path":"/etc/ü","contents":{"source":"data:,a"}}',
    '{"path":"/etc/\\u0061","contents":{"source":"data:,\\u0061"}}',
    '{"path":"/etc/a","contents":{"source":"data:,a","httpHeaders":[]},"append":[]}',
    '{"path":"/etc/a","contents":{"source":"data:,a"},"append":[{"source":"data:,a"}]}',
]
"""As good, and not in the usual form."""

_SHA = "sha256-" + 64 * "0"
BAD = [
    "null",
    "5",
    "{}",
    '{"contents":{"source":"data:,a"}}',
    '{"path":5,"contents":{"source":"data:,a"}}',
    '{"path":"","contents":{"source":"data:,a"}}',
    '{"path":"etc/a","contents":{"source":"data:,a"}}',
    '{"path":"/etc/../a","contents":{"source":"data:,a"}}',
    '{"path":"/etc/./a","contents":{"source":"data:,a"}}',
    '{"path":"/etc//a","contents":{"source":"data:,a"}}',
    '{"path":"/etc/a/","contents":{"source":"data:,a"}}',
    '{"path":"/etc/a\\u0000","contents":{"source":"data:,a"}}',
    '{"path":"/usr/bin/a","contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","path":"/etc/b","contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","path":"/etc/b:","contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","contents":{"source":"data:,a","source":"data:,b"}}',
    '{"path":"/etc/a","contents":{"source":"data:,a"},"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","contents":{"source":"data:,a"},"user":{"id":0,"id":0}}',
    '{"path":"/etc/a","mode":420,"mode":420,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","Mode":420,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":1023,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":-1,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":4.5,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":true,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":"0644","contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":99999999999999999999999,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":9223372036854775808,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","overwrite":1,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","user":{"id":-1},"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","user":{"id":18446744073709551615},"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","user":{"id":4294967295},"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","user":{"id":0,"name":"core"},"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","group":{"name":"a b"},"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","group":[],"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","contents":[]}',
    '{"path":"/etc/a","contents":{"source":5}}',
    '{"path":"/etc/a","contents":{"source":[1,2]}}',
    '{"path":"/etc/a","contents":{"source":{"a":1,"a":1}}}',
    '{"path":"/etc/a","contents":{"source":true}}',
    '{"path":"/etc/a","contents":{"source":nul}}',
    '{"path":"/etc/a","contents":{"source":"data:"}}',
    '{"path":"/etc/a","contents":{"source":"data:text/plain"}}',
    '{"path":"/etc/a","contents":{"source":","}}',
    '{"path":"/etc/a","contents":{"source":"http://host/a,b"}}',
    '{"path":"/etc/a","contents":{"source":"data:;base64,a"}}',
    '{"path":"/etc/a","contents":{"source":"data:;base64,aG=k"}}',
    '{"path":"/etc/a","contents":{"source":"data:;base64,aG-_"}}',
    '{"path":"/etc/a","contents":{"source":"data:;base64,aGk"}}',
    '{"path":"/etc/a","contents":{"source":"data:;base64,aG\\nk="}}',
    '{"path":"/etc/a","contents":{"source":"data:,%"}}',
    '{"path":"/etc/a","contents":{"source":"data:,%4"}}',
    '{"path":"/etc/a","contents":{"source":"data:,%%41"}}',
    '{"path":"/etc/a","contents":{"source":"data:,%00%zz"}}',
    '{"path":"/etc/a","contents":{"source":"data:,a b"}}',
    '{"path":"/etc/a","contents":{"source":"data:,a\tb"}}',
    '{"path":"/etc/a","contents":{"source":"data:,é"}}',
    '{"path":"/etc/a","contents":{"source":"data:,\\"\\""}}',
    '{"path":"/etc/a","contents":{"source":"data:,\udcff"}}',
    '{"path":"/etc/a","contents":{"source":"\udcff"}}',
    '{"path":"/etc/a","contents":{"source":"data:,\udcff","compression":"gzip"}}',
    '{"path":"/etc/a","contents":{"source":"data:;base64,aGk=","compression":"zip"}}',
    '{"path":"/etc/a","contents":{"source":"data:;base64,aGk=","compression":"gzip"}}',
    '{"path":"/etc/a","contents":{"source":"data:;base64,H4sIAAAAAAACA0tMSg==","compression":"gzip"}}',
    '{"path":"/etc/a","contents":{"source":"data:,a","verification":{"hash":"sha256-00"}}}',
    f'{{"path":"/etc/a","contents":{{"source":"data:,a","verification":{{"hash":"{_SHA}"}}}}}}',
    '{"path":"/etc/a","contents":{"source":"data:,a"}',
    '{"path":"/etc/a","contents":{"source":"data:,a"}}}',
    '{"path":"/etc/a","contents":{"source":"data:,a',
]
_ENTRIES = st.sampled_from([*USUAL, *USUAL, *USUAL, *LEFT, *BAD])


def written(entries: list[str], version: str = "3.4.0") -> bytes:
    config = f'{{"ignition":{{"version":"{version}"}},"storage":{{"files":[{",".join(entries)}]}}}}'
    text = (
        '{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"a"},'
        f'"spec":{{"config":{config}}}}}'
    )
    return text.encode(errors="surrogateescape")  # so that a case may hold what is no UTF-8


def outcome(text: bytes, cache: Cache | None) -> MachineConfig | tuple[Problem, ...] | str:
    """By the long way if there is no cache."""
    try:
        return parse_document(load(text, "x"), "x") if cache is None else parse(text, "x", cache=cache)
    except InvalidInput as error:
        return error.problems or error.message


def check(*texts: bytes) -> None:
    """That each config comes out the same, read after those before it."""
    cache = Cache()
    for text in texts:
        assert outcome(text, cache) == outcome(text, None)


@pytest.mark.parametrize("entry", [*USUAL, *LEFT, *BAD])
def test_each_entry_gives_the_same_either_way(entry: str) -> None:
    beside = ['{"path":"/etc/x","contents":{"source":"data:,%41"}}', '{"path":"/x","contents":{"source":"data:,"}}']
    good, alone, among = written(beside), written([entry]), written([beside[0], entry, beside[1]])
    check(alone)
    check(good, among, good, alone, among)
    check(among, alone)
    check(good, written([*beside, *beside]), written([entry, entry]), among)


def test_the_table_holds_what_it_says() -> None:
    for entry in [*USUAL, *LEFT]:
        assert isinstance(outcome(written([entry]), None), MachineConfig)
    for entry in BAD:
        assert not isinstance(outcome(written([entry]), None), MachineConfig)


@pytest.mark.parametrize("entry", USUAL)
def test_the_usual_form_takes_the_short_way(entry: str) -> None:
    document = jsondoc.read(written([entry]), Cache())
    assert document is not None
    assert not document["spec"]["config"]["storage"]["files"].rest  # type: ignore[index]


def test_what_both_have_is_shared() -> None:
    cache = Cache()
    old = parse(written(USUAL[1:7]), cache=cache)
    new = parse(written([*USUAL[2:6], USUAL[0]]), cache=cache)
    assert old.files["/etc/b:c"] is new.files["/etc/b:c"]
    assert (old.files["/etc/a"].content, new.files["/etc/a"].content) == (b"b:c", b"a")


@pytest.mark.parametrize(
    "sources",
    [
        ["data:;base64,QUJD", "QUJD", 'data:;base64,QUJD\\"data:;base64,\\/AAA'],
        ["data:,a", "a", 'data:,\\"data:,a'],
        ["data:,a", "data:,b", "data:;base64,QUJD"],
        ["data:,a", "data:,data:,", "data:,,"],
        ["data:,a", "data:text/plain,a", "data:;base64,QUJD"],
    ],
)
def test_a_header_is_not_taken_for_that_of_another(sources: list[str]) -> None:
    """Several are looked at together: what one of them lacks and another has twice is seen."""
    check(written([f'{{"path":"/etc/{n}","contents":{{"source":"{each}"}}}}' for n, each in enumerate(sources)]))


def test_a_directory_that_became_a_file() -> None:
    files = [f'{{"path":"/etc/{name}","contents":{{"source":"data:,"}}}}' for name in ("a", "b", "c", "d", "x/y", "x")]
    check(written(files[:5]), written([*files[:4], files[5]]), written(files[:5]), written(files))


@settings(max_examples=60)
@given(st.lists(st.lists(_ENTRIES, max_size=5), min_size=1, max_size=4), st.sampled_from(["3.4.0", "3.4.0", "2.2.0"]))
@example([[USUAL[0], USUAL[2]], [USUAL[2]], [USUAL[0], USUAL[2]]], "3.4.0")
@example([[USUAL[0], *USUAL[2:5]], [LEFT[0], *USUAL[2:5]], [USUAL[0], *USUAL[2:5]]], "3.4.0")
@example([[USUAL[5], USUAL[2], LEFT[8]], [USUAL[2]], ['{"path":"/etc/d","contents":{"source":"data:,a"}}']], "3.4.0")
def test_configs_in_a_row_give_the_same_either_way(configs: list[list[str]], version: str) -> None:
    check(*(written(entries, version) for entries in configs))


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.lists(st.tuples(st.integers(0, 59), _ENTRIES), max_size=3))
def test_large_configs_give_the_same_either_way(seed: int, odd: list[tuple[int, str]]) -> None:
    """More entries than are read together, few of them odd."""
    texts = []
    rng = random.Random(seed)
    some = rng.sample(range(150), 120)
    for numbers in (some[:100], some[:60], some[20:]):
        entries = [USUAL[number % 3].replace('":"/etc', f'":"/etc/{number % 7}/{number}') for number in numbers]
        texts.append(written(entries))
        for index, entry in odd:
            entries[index] = entry
        texts.append(written(entries))
    check(*texts)
