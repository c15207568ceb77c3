# SPDX-License-Identifier: Apache-2.0
"""The typed decoder and the second pass over plain data: the same config, or the same problems."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.core.config import parse as parsing
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.parse import parse, parse_document
from nodeagent.core.config.text.document import load
from nodeagent.errors import InvalidInput, Problem

GOOD = [
    '{"path":"/etc/a","contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","contents":{"source":"data:,b:c"},"mode":420}',
    '{"path":"/etc/b:c","contents":{"source":"data:;base64,aGk="},"mode":384,"overwrite":true}',
    '{"path":"/etc/b","contents":{"source":"data:text/plain;charset=utf-8;base64,","verification":{}}}',
    '{ "mode" : 0 , "path" : "/etc/c" , "contents" : { "compression" : "" , "source" : "data:,%41=%3d%00:" } }',
    '{"path":"/etc/d/e","contents":{"source":"data:,"},"user":{},"group":{"name":"root"},"overwrite":false}',
    '{"path":"/etc/d/f","contents":{"source":"data:,a"},"user":{"id":7},"group":{"id":0,"name":""}}',
    '{"path":"/etc/a/below","contents":{"source":"data:,a"}}',
    '{"path":"/etc/d","contents":{"source":"data:,a"}}',
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

# Each has a value that the decoder must not convert or skip.
BAD = [
    "null",
    "5",
    "{}",
    '{"path":5,"contents":{"source":"data:,a"}}',
    '{"path":"","contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","Mode":420,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":1023,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":4.5,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":true,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":"0644","contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":99999999999999999999999,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","mode":9223372036854775808,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","overwrite":1,"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","user":{"id":-1},"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","user":{"id":18446744073709551615},"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","group":[],"contents":{"source":"data:,a"}}',
    '{"path":"/etc/a","contents":[]}',
    '{"path":"/etc/a","contents":{"source":5}}',
    '{"path":"/etc/a","contents":{"source":[1,2]}}',
    '{"path":"/etc/a","contents":{"source":true}}',
    '{"path":"/etc/a","contents":{"source":nul}}',
    '{"path":"/etc/a","contents":{"source":"data:,a\tb"}}',
    '{"path":"/etc/a","contents":{"source":"data:,é"}}',
    '{"path":"/etc/a","contents":{"source":"data:,\udcff"}}',
    '{"path":"/etc/a","contents":{"source":"\udcff"}}',
    '{"path":"/etc/a","contents":{"source":"data:,\udcff","compression":"gzip"}}',
    '{"path":"/etc/a","contents":{"source":"data:;base64,aGk=","compression":"gzip"}}',
    '{"path":"/etc/a","contents":{"source":"data:;base64,H4sIAAAAAAACA0tMSg==","compression":"gzip"}}',
    '{"path":"/etc/a","contents":{"source":"data:,a"}',
    '{"path":"/etc/a","contents":{"source":"data:,a"}}}',
    '{"path":"/etc/a","contents":{"source":"data:,a',
]


def written(entries: list[str]) -> bytes:
    config = f'{{"ignition":{{"version":"3.4.0"}},"storage":{{"files":[{",".join(entries)}]}}}}'
    text = (
        '{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"a"},'
        f'"spec":{{"config":{config}}}}}'
    )
    # An entry may contain bytes that are not UTF-8.
    return text.encode(errors="surrogateescape")


def outcome(text: bytes, *, typed: bool) -> MachineConfig | tuple[Problem, ...] | str:
    try:
        return parse(text, "x") if typed else parse_document(load(text, "x", unique_keys=False), "x")
    except InvalidInput as error:
        return error.problems or error.message


@pytest.mark.parametrize("entry", GOOD)
def test_a_good_entry_needs_one_pass(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = written([entry])
    plain = outcome(text, typed=False)
    monkeypatch.delattr(parsing, "load")
    assert isinstance(plain, MachineConfig)
    assert outcome(text, typed=True) == plain


def test_too_many_files_are_rejected_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MAX_PATHS", 1)
    monkeypatch.delattr(parsing, "load")
    with pytest.raises(InvalidInput, match="has 2 files"):
        parse(written([GOOD[0], BAD[2]]))


@pytest.mark.parametrize("entry", BAD)
def test_a_bad_entry_gives_the_same_problems(entry: str) -> None:
    beside = ['{"path":"/etc/x","contents":{"source":"data:,%41"}}', '{"path":"/x","contents":{"source":"data:,"}}']
    for text in (written([entry]), written([beside[0], entry, beside[1]])):
        found = outcome(text, typed=True)
        assert not isinstance(found, MachineConfig)
        assert found == outcome(text, typed=False)


@settings(max_examples=60)
@given(st.lists(st.sampled_from([*GOOD, *GOOD, *BAD]), max_size=5))
def test_both_give_the_same(entries: list[str]) -> None:
    assert outcome(written(entries), typed=True) == outcome(written(entries), typed=False)
