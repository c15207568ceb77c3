# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from nodeagent.features.fleetlock.decide import body_of, is_group, refusal_text


def test_groups() -> None:
    assert is_group("workers-eu.1")
    assert not is_group("")
    assert not is_group("a/b")
    assert not is_group("a\n")


def test_what_a_server_says() -> None:
    assert refusal_text({"kind": "failed_lock", "value": "semaphore is full"}) == "failed_lock: semaphore is full"
    assert refusal_text({"kind": "failed_lock"}) == "failed_lock"
    assert refusal_text({"value": "x"}) == ""
    assert body_of("ab", "default") == {"client_params": {"id": "ab", "group": "default"}}
