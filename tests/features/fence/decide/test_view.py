# SPDX-License-Identifier: Apache-2.0
"""Texts of the fence, and the floor for a file system and a kernel."""

from __future__ import annotations

import pytest

from nodeagent.features.fence.decide.bounds import FENCE_BOUNDS, Bounds, careful
from nodeagent.features.fence.decide.view import FenceView, quantile_of, summary


@pytest.mark.parametrize(
    ("filesystem", "kernel", "floor"),
    [
        ("xfs", "6.12.0-55.el10.x86_64", 4e6),
        ("xfs", "6.18.3", 4e6),
        ("xfs", "5.14.0-570.el9.x86_64", 8e6),
        ("ext4", "6.18.3", 4e6),
        ("ext4", "6.11.0", 8e6),
        ("", "custom", 8e6),
    ],
)
def test_the_floor(filesystem: str, kernel: str, floor: float) -> None:
    assert careful(FENCE_BOUNDS, filesystem, kernel).floor == floor
    assert careful(Bounds(floor=2e7), filesystem, kernel).floor == 2e7
    assert careful(FENCE_BOUNDS, filesystem, kernel).floor_iops == (150 if filesystem == "ext4" else 200)
    drain = careful(FENCE_BOUNDS, filesystem, kernel).drain
    assert (drain is not None) == (filesystem == "ext4"), "others wait there for what is dirty"


def test_a_p99_is_one_of_the_samples_and_needs_enough_of_them() -> None:
    assert quantile_of([0.1] * 49, 0.99) is None
    assert quantile_of([0.002] * 99 + [0.1], 0.99) == 0.002
    assert quantile_of([0.002] * 98 + [0.1, 0.2], 0.99) == 0.1


def test_what_is_not_known_is_null() -> None:
    shown = FenceView(active=False, reason="NoDisk", message="on no disk").to_dict()
    assert (shown["active"], shown["write_bps"], shown["victim_p99_ms"]) == (False, None, None)


def test_a_view_in_words() -> None:
    view = FenceView(active=True, p99=0.0031, exceedances=2, throttled=40.4, seconds=61)
    assert view.to_dict()["victim_p99_ms"] == 3.1
    assert summary(view) == (
        "active for 61 s, writes capped for 40 s, 2 fsyncs of etcd over 100 ms, p99 at the end 3.1 ms"
    )
