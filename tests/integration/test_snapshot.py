# SPDX-License-Identifier: Apache-2.0
"""What counts as a difference between two snapshots of a host."""

from __future__ import annotations

import pytest

from integration.hosts.snapshot import undated

DAY = b"root:*:20782:0:99999:7:::\ncore:$y$hash:20782:0:99999:7:::\n"


def test_the_day_of_a_password_is_no_difference() -> None:
    assert undated(DAY) == undated(DAY.replace(b"20782", b"20783"))


@pytest.mark.parametrize(("was", "now"), [(b"$y$hash", b"$y$other"), (b"99999", b"30"), (b"core", b"guest")])
def test_all_else_of_a_password_is_one(was: bytes, now: bytes) -> None:
    assert undated(DAY) != undated(DAY.replace(was, now))
