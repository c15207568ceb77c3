# SPDX-License-Identifier: Apache-2.0
"""A Lease as data: the fields that may be missing, its end, and whose notes it has."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.core.coordination.lease import INT32, Claim, NodeLease, notes_of, read_lease

META: Any = {"name": "n", "uid": "u", "resourceVersion": "7"}
RENEWED = "2026-11-28T20:00:00.000000Z"


@pytest.mark.parametrize("spec", [{}, None, dict.fromkeys(("holderIdentity", "acquireTime", "renewTime", "strategy"))])
def test_a_lease_without_fields(spec: Any) -> None:
    assert read_lease({"metadata": META, "spec": spec}) == NodeLease("u", "7", "")
    assert read_lease({"metadata": META}) == NodeLease("u", "7", "")


def test_all_fields() -> None:
    spec: Any = {
        "holderIdentity": "a/b",
        "leaseDurationSeconds": 30,
        "acquireTime": "2026-11-28T19:00:00.000000Z",
        "renewTime": RENEWED,
        "leaseTransitions": 3,
        "strategy": "OldestEmulationVersion",
    }
    annotations = {"nodeagent.org/requester": "a", "other.example/requester": "b"}
    meta: Any = {**META, "annotations": annotations, "deletionTimestamp": RENEWED}
    lease = read_lease({"metadata": meta, "spec": spec})
    assert lease == NodeLease(
        "u", "7", "a/b", 30.0, spec["acquireTime"], RENEWED, 3, elected=True, deleting=True, notes={"requester": "a"}
    )


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [(0, 0.0), (-1, -1.0), (INT32, float(INT32)), (INT32 + 1, None), (-INT32 - 1, None), (None, None)],
)
def test_a_duration_behind_its_type_is_none(duration: int | None, seconds: float | None) -> None:
    spec: Any = {"leaseDurationSeconds": duration, "renewTime": RENEWED}
    lease = read_lease({"metadata": META, "spec": spec})
    assert lease.duration == seconds
    assert lease.expires == (None if seconds is None else 1795896000.0 + seconds)


def test_a_lease_that_was_never_renewed_has_no_end() -> None:
    assert NodeLease("u", "7", "a/b", 30.0).expires is None
    assert NodeLease("u", "7", "a/b", 30.0, renewed="soon").expires is None


@pytest.mark.parametrize(
    ("identity", "instance", "is_ours", "has_notes"),
    [
        ("nodeagent/op", "i", True, True),
        ("nodeagent/op", "j", False, True),
        ("nodeagent/other", "i", False, False),
        ("medik8s", "i", False, False),
    ],
)
def test_whose_it_is(identity: str, instance: str, *, is_ours: bool, has_notes: bool) -> None:
    claim = Claim("nodeagent", "op", "why", "i")
    notes = {key.rpartition("/")[2]: value for key, value in notes_of(claim).items()}
    lease = NodeLease("u", "7", identity, notes={**notes, "instance": instance})
    assert lease.is_of(claim) is is_ours
    assert lease.holder_notes == (lease.notes if has_notes else {})
