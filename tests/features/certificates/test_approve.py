# SPDX-License-Identifier: Apache-2.0
"""`nodeagent fleet approve` against a server with a few requests."""

from __future__ import annotations

import asyncio
import json

import pytest

from nodeagent.cli.main import main
from tests.features.certificates.test_approval import NODE, RENEWAL, pem_of, signing_request
from tests.kube.fleet import Fleet, fleet
from tests.kube.server import Answer

__all__ = ["fleet"]

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


async def approve(fleet: Fleet, *words: str) -> int:
    return await asyncio.to_thread(main, ["fleet", "approve", "--kubeconfig", str(fleet.path), *words])


async def test_approval_is_by_name(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    pem = pem_of()
    first, renewal = signing_request(pem), signing_request(pem, by=RENEWAL)
    strange = {**first, "metadata": {**first["metadata"], "name": "nodeagent-\x1b[2J"}}
    name = first["metadata"]["name"]
    fleet.api.lists = {CSRS: [first, strange]}
    assert await approve(fleet) == 2
    assert await approve(fleet, "--renewals") == 0
    assert fleet.server.requests[-1].method == "GET"
    capsys.readouterr()
    assert await approve(fleet, "--dry-run") == 4
    printed = capsys.readouterr().out
    assert f"fits: {name} (first request of node {NODE})" in printed
    assert "\x1b" not in printed
    assert await approve(fleet, "--dry-run", name) == 0
    assert await approve(fleet, "--dry-run", "nodeagent-other") == 4
    assert "nodeagent-other is pending" in capsys.readouterr().out
    assert await approve(fleet, "--dry-run", name, "nodeagent-other", "--json") == 4
    answer = json.loads(capsys.readouterr().out)
    assert answer["dry_run"] is True
    assert answer["requests"] == [
        {"name": name, "node": NODE, "renewal": False, "refused": ""},
        {"name": "nodeagent-other", "node": "", "renewal": False, "refused": answer["requests"][1]["refused"]},
    ]
    fleet.api.lists = {CSRS: [renewal, strange]}
    assert await approve(fleet, "--dry-run", "--renewals") == 0
    assert f"fits: {name} (renewal of node {NODE})" in capsys.readouterr().out


async def test_approval_without_the_right(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.api.lists = {CSRS: Answer(403, {"message": "not allowed"})}
    assert await approve(fleet, "--renewals") == 4
    assert "bootstrap.yaml" in capsys.readouterr().err
