# SPDX-License-Identifier: Apache-2.0
"""A maintenance as data, and in the store."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.errors import Terminal
from nodeagent.features.maintenance.decide import NOTE, Maintenance, MaintenanceState, from_text, to_text
from nodeagent.features.maintenance.view import STATUS, MaintenanceStatus
from nodeagent.host.store.opening import open_database, read_only_open

KERNEL = "0d3f4c1e-6a0b-4c55-9f5f-000000000001"
SINCE, UNTIL = "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"
KEPT = Maintenance("3f2b", "jane", "disks", SINCE, until=UNTIL, drain=True, tries=2)


@pytest.mark.finding(
    "OS: soft reboots",
    "The identity of a boot has the count of soft reboots, from every systemd, also where PID 1 is busy.",
)
def test_a_soft_reboot_is_no_power_off() -> None:
    note = Maintenance("1", "me", "disk", "2026-01-01T00:00:00Z", began="2026-01-01T00:00:00Z", power_off=True)
    for boot, state in (
        (KERNEL, MaintenanceState.POWERING_OFF),
        (f"{KERNEL}+1", MaintenanceState.POWERING_OFF),
        ("two", MaintenanceState.UNDER_WAY),
    ):
        asked = Maintenance(**{name: getattr(note, name) for name in note.__dataclass_fields__} | {"off_boot": KERNEL})
        assert asked.state(boot) is state


def test_a_maintenance_is_kept_until_it_is_over(tmp_path: Path) -> None:
    path = tmp_path / "state/state.db"
    with open_database(path) as store:
        assert from_text(store.note(NOTE)) is None
        store.keep_note(NOTE, to_text(KEPT))
    with open_database(path) as store:
        assert from_text(store.note(NOTE)) == KEPT
    with read_only_open(path) as reader:
        assert STATUS[0].stored(reader.note) == MaintenanceStatus(KEPT)
    with open_database(path) as store:
        store.keep_note(NOTE, "")
    with read_only_open(path) as reader:
        assert STATUS[0].stored(reader.note) is None


def test_older_agents_find_it_in_the_same_row(tmp_path: Path) -> None:
    """A maintenance lasts through an upgrade and a downgrade."""
    path = tmp_path / "state/state.db"
    with open_database(path) as store:
        store.keep_note(NOTE, to_text(KEPT))
    with closing(sqlite3.connect(path)) as db:
        ((text,),) = db.execute("SELECT value FROM meta WHERE key = 'maintenance'").fetchall()
    assert json.loads(text)["requester"] == "jane"


@given(
    st.builds(
        Maintenance,
        *[st.text(max_size=9)] * 3,
        st.just(SINCE),
        until=st.sampled_from(["", UNTIL]),
        drain=st.booleans(),
        tries=st.integers(0, 9),
    )
)
def test_what_is_stored_is_read(maintenance: Maintenance) -> None:
    assert from_text(to_text(maintenance)) == maintenance


@pytest.mark.parametrize("text", ['{"id": 3}', "[]", "{", to_text(KEPT).replace(UNTIL, "2026-01-02T00:00:00")])
def test_a_damaged_one_is_corruption(text: str) -> None:
    with pytest.raises(Terminal) as caught:
        from_text(text)
    assert caught.value.reason == "StoreCorrupt"
