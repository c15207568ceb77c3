# SPDX-License-Identifier: Apache-2.0
"""Keys of the image cache: they follow the code and not its words."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.hosts.sources import code

MODULE = '''"""Makes an image."""

from a import b


def build() -> int:
    """Return the size."""
    return b.size(1)  # in bytes
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("Makes an image", "Builds an image", True),
        ("Return the size", "Return the size in bytes", True),
        ("# in bytes", "# in MB", True),
        ("from a import b", "from a.c import b", True),
        ("size(1)", "size(2)", False),
        ("def build", "def make", False),
        ("return b", "other.imported()\n    return b", False),
    ],
)
def test_key_follows_statements_only(tmp_path: Path, old: str, new: str, same: bool) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(MODULE)
    after.write_text(MODULE.replace(old, new))
    assert after.read_text() != MODULE
    assert (code(str(before)) == code(str(after))) is same


def test_key_has_every_module(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("x = 1")
    two.write_text("y = 1")
    assert len({code(str(one)), code(str(two)), code(str(one), str(two))}) == 3
