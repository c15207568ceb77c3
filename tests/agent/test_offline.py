# SPDX-License-Identifier: Apache-2.0
"""A plan of this host while the daemon is down, on a copy of its store; on a private bus without systemd."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.agent.offline import plan_offline
from nodeagent.errors import InvalidInput, Refused
from nodeagent.update.states import Apply, Phase
from tests.agent.test_daemon_starts import host, on
from tests.agent.whole_daemon import WholeDaemon, source
from tests.support.disk import needs_root
from tests.support.fixtures import private_bus
from tests.support.needs import acts_as_root

__all__ = ["host", "private_bus"]


async def plan(host: WholeDaemon, text: bytes, *, diff: bool = False) -> dict[str, Any]:
    return await plan_offline(text.decode(), {"diff": diff}, read=host.read)


def content(host: WholeDaemon) -> dict[Path, str]:
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in host.directory.rglob("*") if path.is_file()}


@acts_as_root
async def test_the_plan_is_that_of_the_daemon_and_nothing_is_written(host: WholeDaemon) -> None:
    managed, drifted = (host.directory / name for name in ("managed", "drifted"))
    for path in (managed, drifted):
        path.write_text("1")
        path.chmod(0o644)
    await on(host, source("old", {str(managed): "1", str(drifted): "1"}))
    drifted.write_text("token = hunter2\n")
    new = source("new", {str(managed): "2", str(drifted): "3"})
    async with host.running() as client:
        expected = await client.plan(new.text.decode(), diff=True)
    before = content(host)
    answer = await plan(host, new.text, diff=True)
    assert content(host) == before
    assert (answer.pop("daemon"), expected.pop("daemon")) == ("stopped", "running")
    assert answer == expected
    assert (answer["from"], answer["to"]) == ("old", "new")
    assert [found["then"] for found in answer["drift"]] == ["overwritten"]
    assert "[redacted]" in str(answer)
    assert "hunter2" not in str(answer)


@needs_root
async def test_a_host_on_which_the_daemon_never_ran(host: WholeDaemon) -> None:
    present, missing = host.directory / "present", host.directory / "missing"
    present.write_text("1")
    present.chmod(0o644)
    answer = await plan(host, source("first", {str(present): "1", str(missing): "2"}).text)
    assert (answer["from"], [change["key"] for change in answer["changes"]]) == ("", [str(missing)])
    assert list(host.state.iterdir()) == []


async def test_what_apply_refuses_is_refused(host: WholeDaemon) -> None:
    await on(host, source("old"))
    with pytest.raises(InvalidInput) as caught:
        await plan(host, source("new", {"/etc/containers/policy.json": "%7B"}).text)
    assert caught.value.reason == "InvalidContent"


async def test_a_policy_that_cannot_be_read_is_a_problem_as_for_the_daemon(host: WholeDaemon) -> None:
    await on(host, source("old"))
    host.policy.write_text("files: 1\n")
    (problem,) = (await plan(host, source("new", {"/etc/nodeagent-test": "x"}).text))["problems"]
    assert problem["topic"] == "policy"


async def test_an_update_that_was_interrupted_is_under_way(host: WholeDaemon) -> None:
    await on(host, source("old"))
    async with host.store() as store:
        await store.save(replace(await store.load(), phase=Phase.WRITING, leg=Apply(), to_name="other"))
    with pytest.raises(Refused) as caught:
        await plan(host, source("new").text)
    assert caught.value.reason == "UpdateUnderWay"
