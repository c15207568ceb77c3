# SPDX-License-Identifier: Apache-2.0
"""Which feature serves the deployments: chosen at the first staging of a host, and again where that one cannot."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.agent import compose
from nodeagent.agent.compose import deployments_of
from nodeagent.door import Door
from nodeagent.update.ports.store import SERVED_BY
from nodeagent.update.stages.os_deployments import HostDeployments

ANY: Any = None


class Host:
    """Has features by name: whether each serves the host at present, and what it is asked."""

    def __init__(self, **serves: bool) -> None:
        self.serves = serves
        self.asked: list[tuple[str, bool]] = []

    def doors(self) -> dict[str, Door]:
        return {"without": Door(title="", page=""), **{name: self._door(name) for name in self.serves}}

    def _door(self, name: str) -> Door:
        async def deployments(_units: object, _settings: object, chosen: bool) -> Any:
            self.asked.append((name, chosen))
            return f"port of {name}" if self.serves[name] else None

        return Door(title="", page="", deployments=deployments)


class Notes:
    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self.writes = 0

    async def note(self, key: str) -> str:
        return self.notes.get(key, "")

    async def keep_note(self, key: str, text: str) -> None:
        self.writes += 1
        self.notes[key] = text


@pytest.mark.parametrize(
    ("host", "chosen", "served", "asked"),
    [
        (Host(one=True, two=True), "", ("one", "port of one"), [("one", False)]),
        (Host(one=False, two=True), "", ("two", "port of two"), [("one", False), ("two", False)]),
        (Host(one=False, two=False), "", None, [("one", False), ("two", False)]),
        # Another one that could serve the host since is not asked.
        (Host(one=True, two=True), "two", ("two", "port of two"), [("two", True)]),
        # This boot is of an image without what served the host, or the feature has left.
        (Host(one=True, two=False), "two", ("one", "port of one"), [("two", True), ("one", False)]),
        (Host(one=False, two=False), "two", None, [("two", True), ("one", False), ("two", False)]),
        (Host(one=True), "removed", ("one", "port of one"), [("one", False)]),
    ],
)
async def test_who_serves_the_host(
    monkeypatch: pytest.MonkeyPatch, host: Host, chosen: str, served: object, asked: object
) -> None:
    monkeypatch.setattr(compose, "doors", host.doors)
    assert await deployments_of(ANY, ANY, chosen) == served
    assert host.asked == asked


async def test_the_choice_is_kept_at_the_first_staging() -> None:
    notes = Notes()

    class Port:
        async def stage(self, _target: object, **_options: object) -> None:
            assert notes.notes == {SERVED_BY: "one"}

        async def list(self) -> tuple[()]:
            return ()

    class Reporter:
        def emit(self, _event: object) -> None:
            pass

    os = HostDeployments(Port(), Reporter(), begins=lambda: compose.keep_choice(notes, "one"))  # type: ignore[arg-type]
    await os.list()
    assert notes.notes == {}
    for _ in range(2):
        await os.stage(ANY, credentials=None, replace="", on_progress=ANY)
    assert notes.writes == 1
