# SPDX-License-Identifier: Apache-2.0
"""The control group of a process, on hosts with either hierarchy, or both."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.host.proc import control_group_of

SESSION = "/user.slice/user-1000.slice/session-1.scope"


@pytest.mark.parametrize(
    ("lines", "group"),
    [
        (f"0::{SESSION}\n", SESSION),
        (f"2:cpu:/\n1:name=systemd:{SESSION}\n0::/\n", SESSION),
        (f"2:cpu:/\n1:name=systemd:/\n0::{SESSION}\n", SESSION),
        (f"1:name=systemd:{SESSION}\n", SESSION),
        ("1:name=systemd:/\n0::/\n", "/"),
        ("0::/a:b\n", "/a:b"),
        ("nonsense\n", ""),
        (None, ""),
    ],
)
def test_the_hierarchy_that_systemd_uses_counts(tmp_path: Path, lines: str | None, group: str) -> None:
    (tmp_path / "7").mkdir()
    if lines is not None:
        (tmp_path / "7/cgroup").write_text(lines)
    assert control_group_of(7, tmp_path) == group
