"""Reloads that are rejected, units that restart along with others, and units that are still starting."""

from __future__ import annotations

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.update.events import Warned
from nodeagent.core.update.phase import Phase
from tests.world import FakeUnit, World
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

A = config("a", {"/etc/web/x": "1", "/etc/ca/x": "1"})


async def started(**web: object) -> Host:
    units = {"web.service": FakeUnit(), "app.service": FakeUnit(), "trust.service": FakeUnit()}
    host = Host(World(units=units))
    host.want(A)
    await host.settle()
    assert host.phase is Phase.IDLE
    host.world.done.clear()
    for name, value in web.items():
        setattr(units["web.service"], name, value)
    return host


async def test_a_rejected_reload_is_reverted_without_a_reboot() -> None:
    host = await started(rejects="Unable to reload configuration: no such file")
    host.want(config("b", {"/etc/web/x": "2", "/etc/ca/x": "1"}))
    await host.settle()
    entry = host.world.history[-1]
    assert (entry.outcome, entry.reason, entry.reboots) == ("reverted", "ReloadRejected", 0)
    assert host.actions() == ["reload web.service"] * 2
    assert host.world.disk["/etc/web/x"] == RegularFile(b"1")
    assert host.world.boot == 1


async def test_a_reload_without_a_word_is_a_warning() -> None:
    host = await started(rejects=None)
    host.want(config("b", {"/etc/web/x": "2", "/etc/ca/x": "1"}))
    await host.settle()
    assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, "done")
    assert any(isinstance(event, Warned) and "did not log" in event.message for event in host.world.events)


async def test_a_unit_that_restarts_along_is_restarted_once() -> None:
    host = await started()
    host.world.units["trust.service"].takes_along = ("app.service",)
    host.want(config("b", {"/etc/web/x": "1", "/etc/ca/x": "2"}))
    await host.settle()
    assert host.actions() == ["restart trust.service"]
    assert host.world.units["app.service"].read["/etc/ca/x"] == RegularFile(b"2")
    assert host.world.history[-1].outcome == "done"


async def test_a_unit_that_is_still_starting_is_restarted_instead_of_reloaded() -> None:
    host = await started(active="activating")
    host.want(config("b", {"/etc/web/x": "2", "/etc/ca/x": "1"}))
    await host.settle()
    assert host.actions() == ["restart web.service"]
    assert host.world.units["web.service"].read["/etc/web/x"] == RegularFile(b"2")
