# SPDX-License-Identifier: Apache-2.0
"""JSON from outside: whatever is wrong with it is a ``ValueError``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nodeagent
from nodeagent.core.config.text import plain_json

DEEP = 200_000


@pytest.mark.finding(
    "daemon: no bug ends it",
    "JSON of any origin raises `ValueError` only, nesting included, and no module decodes it another way.",
)
@pytest.mark.parametrize("text", ["[" * DEEP, '{"a":' * DEEP, "[" * DEEP + "]" * DEEP, "{", "", "\x00", b"\xff\xfe"])
def test_what_is_wrong_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        plain_json.loads(text)


def test_a_document() -> None:
    assert plain_json.loads(b'{"a": [1, null, "b"]}') == {"a": [1, None, "b"]}


@pytest.mark.finding(
    "daemon: no bug ends it",
    "JSON of any origin raises `ValueError` only, nesting included, and no module decodes it another way.",
)
def test_no_module_decodes_json_in_another_way() -> None:
    package = Path(nodeagent.__file__).parent
    found = [path for path in package.rglob("*.py") if re.search(r"\bjson\.loads?\(", path.read_text())]
    assert found == [package / "core/config/text/plain_json.py"]
