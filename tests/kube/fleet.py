# SPDX-License-Identifier: Apache-2.0
"""`nodeagent fleet` against a server with lists of objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli.main import main
from tests.kube.server import CUT, Answer, Request, Server, serving
from tests.kube.test_client import kubeconfig


@dataclass
class Api:
    """Lists by path; what is not there is 404."""

    lists: dict[str, Any] = field(default_factory=dict)
    away: bool = False

    def __call__(self, request: Request) -> Any:
        if self.away:
            return CUT
        found = self.lists.get(request.target.partition("?")[0], Answer(404, {"message": "not found"}))
        return found if isinstance(found, Answer) else Answer(body={"items": found})


@dataclass
class Fleet:
    api: Api
    server: Server
    path: Path

    async def status(self, *words: str) -> int:
        """Run the command in a thread: it has a loop of its own, and the server uses that of the test."""
        return await asyncio.to_thread(main, ["fleet", "status", "--kubeconfig", str(self.path), *words])


@pytest.fixture
async def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("nodeagent.kube.client.FIRST_PAUSE", 0.01)
    async with serving(Answer()) as server:
        server.answer = api = Api()
        yield Fleet(api, server, kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", token="very-secret"))
