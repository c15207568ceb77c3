# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli import main as command_line
from nodeagent.settings.load import load
from tests.cli.daemon.fake_daemon import FakeDaemon
from tests.support.fixtures import PrivateBus, private_bus

__all__ = ["private_bus"]

NOW = datetime(2026, 11, 21, 3, 12, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)


Cli = Callable[..., Answer]


@pytest.fixture(autouse=True)
def three_in_the_morning(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("apply", "status", "history", "lease", "_follow"):
        monkeypatch.setattr(f"nodeagent.cli.{module}.local_now", lambda: NOW, raising=False)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A config.d of our own, whose store is in the test's directory."""
    directory = tmp_path / "config.d"
    directory.mkdir()
    (directory / "10-test.yaml").write_text(
        f"state_dir: {tmp_path}/state\npolicy: {tmp_path}/policy.yaml\ndesired_config: {tmp_path}/desired.yaml\n"
    )
    monkeypatch.setattr(load, "__defaults__", ((str(directory),),))
    return directory


@pytest.fixture
async def loop_of_the_test() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], loop_of_the_test: asyncio.AbstractEventLoop) -> Cli:
    def run(*words: str) -> Answer:
        try:
            code = command_line.main(list(words))
        finally:
            # asyncio.run leaves none behind, and the fixtures' own would be lost.
            asyncio.set_event_loop(loop_of_the_test)
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return run


@pytest.fixture
def bus_address(private_bus: PrivateBus, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", private_bus.address)
    return private_bus.address


@pytest.fixture
def daemon(bus_address: str) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(bus_address)
    yield fake
    fake.close()
