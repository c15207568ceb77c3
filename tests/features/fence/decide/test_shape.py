# SPDX-License-Identifier: Apache-2.0
"""Which queues may be given another shape, and which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.features.fence.decide.shape import QueueFacts, Shape, UnshapedQueue, choose_shape

VIRTIO = QueueFacts(1280, "none", ("none", "mq-deadline", "kyber", "bfq"))
"""A slow cloud disk, as a guest sees it."""


def test_a_slow_disk_gets_small_requests_and_a_short_queue() -> None:
    assert choose_shape(VIRTIO, 0.012, may_switch=False) == Shape(32, 1)
    assert choose_shape(VIRTIO, None, may_switch=False) == Shape(32, 1)


def test_with_leave_it_gets_a_scheduler_that_heeds_priorities() -> None:
    tight = Shape(32, 1, "mq-deadline", priorities=True, wbt=False)
    assert choose_shape(VIRTIO, 0.012, may_switch=True) == tight
    without = replace(VIRTIO, schedulers=("none",))
    assert choose_shape(without, 0.012, may_switch=True) == Shape(32, 1)


def test_one_that_has_it_keeps_it_but_what_is_under_way_is_bounded() -> None:
    """No priorities: nothing is left to be sorted by them."""
    facts = replace(VIRTIO, scheduler="mq-deadline")
    assert choose_shape(facts, 0.012, may_switch=False) == Shape(32, 1)
    assert choose_shape(facts, 0.012, may_switch=True) == Shape(32, 1, "mq-deadline", priorities=True, wbt=False)


@pytest.mark.parametrize(
    ("change", "idle_p99", "word"),
    [
        ({}, 0.0019, "fast"),
        ({"nvme": True}, None, "NVMe"),
        ({"nvme": True}, 0.0004, "fast"),
        ({"multipath": True}, 0.012, "paths"),
        ({"scheduler": "bfq"}, 0.012, "bfq"),
        ({"scheduler": "kyber"}, 0.012, "kyber"),
    ],
)
def test_where_it_would_hurt_it_is_refused(change: dict[str, Any], idle_p99: float | None, word: str) -> None:
    found = choose_shape(replace(VIRTIO, **change), idle_p99, may_switch=True)
    assert isinstance(found, UnshapedQueue)
    assert word in found.why


def test_a_slow_nvme_disk_is_a_disk_like_others() -> None:
    """Clouds have such disks."""
    assert choose_shape(replace(VIRTIO, nvme=True), 0.012, may_switch=False) == Shape(32, 1)


@given(st.integers(4, 4096), st.sampled_from([512, 4096, 65536]), st.integers(1, 1024), st.booleans())
def test_no_shape_is_wider_than_what_was_found(sectors: int, block: int, requests: int, switch: bool) -> None:
    facts = replace(VIRTIO, max_sectors_kb=sectors, logical_block_size=block, nr_requests=requests)
    shape = choose_shape(facts, 0.01, may_switch=switch)
    assert isinstance(shape, Shape)
    assert sectors >= shape.max_sectors_kb >= min(sectors, max(4, block // 1024))
    assert requests >= shape.depth >= 1
    assert shape.scheduler in ("", "mq-deadline")
