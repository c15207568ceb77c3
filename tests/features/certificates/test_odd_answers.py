# SPDX-License-Identifier: Apache-2.0
"""Requests and reviews of another form than the API's are faults of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from integration.fuzz.api import WHOLE
from nodeagent.features.certificates.decide.approval import applicant_of
from nodeagent.features.certificates.requests import pending_requests, verify
from nodeagent.kube.client import KubeClient
from tests.kube.odd_answers import MISSING, Readers, odd, read_all


async def requests(client: KubeClient) -> None:
    for request in await pending_requests(client):
        applicant_of(request)


READERS: Final[Readers] = {"requests": requests, "identity": lambda client: verify(client, "n", wait=0)}


async def test_an_object_of_the_api_is_read(tmp_path: Path) -> None:
    assert "KubeServerFault" not in (await read_all(tmp_path, WHOLE, READERS)).values()


@pytest.mark.finding(
    "attack: answers of an API server", "An object of another form is a fault of the server for every reader."
)
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata", MISSING),
        ("metadata.name", 7),
        ("spec", []),
        ("spec.usages", "x"),
        ("status.conditions", {}),
        ("status.userInfo", ["x"]),
    ],
)
async def test_an_odd_object_is_a_fault_of_the_server(tmp_path: Path, path: str, value: Any) -> None:
    assert "KubeServerFault" in (await read_all(tmp_path, odd(path, value), READERS)).values()
