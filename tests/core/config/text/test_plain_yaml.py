# SPDX-License-Identifier: Apache-2.0
"""YAML of other programs: whatever is wrong with it is a ``ValueError``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nodeagent
from nodeagent.core.config.text import plain_yaml

DEEP = 50_000


@pytest.mark.finding(
    "daemon: a start with damaged files, daemon: no bug ends it",
    "Settings, and YAML and TOML of other programs, are invalid where a value does not fit its tag, is half a "
    "surrogate pair or has too many digits; no other error leaves their readers.",
)
@pytest.mark.parametrize(
    "text",
    [
        b"[" * DEEP,
        b"{a: " * DEEP,
        b"{",
        b"\x00",
        b"\xff\xfe\x00",
        b"a: 2024-99-99",
        b"a: " + b"9" * 5000,
        b"a: !!bool maybe",
        b"a: !!timestamp soon",
        b"a: !!int ''",
        b"{? [a]: b}",
        b"{<<: 5}",
        b"!!python/object/apply:os.system [x]",
    ],
    ids=lambda text: text[:25],
)
def test_what_is_wrong_is_a_value_error_without_words_of_the_text(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not YAML$"):
        plain_yaml.loads(text)


def test_a_document() -> None:
    assert plain_yaml.loads(b"a: [1, ~, b]") == {"a": [1, None, "b"]}


def test_no_module_builds_objects_from_yaml_in_another_way() -> None:
    package = Path(nodeagent.__file__).parent
    found = [path for path in package.rglob("*.py") if re.search(r"\bsafe_load|construct_", path.read_text())]
    assert sorted(found) == [package / "core/config/text/plain_yaml.py", package / "settings/load.py"]
