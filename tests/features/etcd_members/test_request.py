# SPDX-License-Identifier: Apache-2.0
"""A call on the bus, and a host that has no settings of a member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.features.etcd_members import host
from nodeagent.features.etcd_members.decide.membership import MemberRequest, OperationKind
from nodeagent.features.etcd_members.request import request_of


@pytest.mark.parametrize(
    ("operation", "options", "request_"),
    [
        ("join", {}, MemberRequest(OperationKind.JOIN)),
        ("leave", {}, MemberRequest(OperationKind.LEAVE)),
        ("replace", {}, MemberRequest(OperationKind.REPLACE)),
        ("replace", {"member": "c"}, MemberRequest(OperationKind.REPLACE, "c")),
    ],
)
def test_a_request(operation: str, options: dict[str, Any], request_: MemberRequest) -> None:
    assert request_of(operation, options) == request_


@pytest.mark.parametrize(
    ("operation", "options"),
    [("move", {}), ("join", {"member": "c"}), ("replace", {"member": 1}), ("replace", {"members": "c"})],
)
def test_a_request_that_this_version_does_not_know(operation: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as raised:
        request_of(operation, options)
    assert raised.value.reason == "BadOption"


async def test_a_host_without_the_file_has_no_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MEMBER_SETTINGS", str(tmp_path / "none.yaml"))
    nothing: Any = None
    assert await host.open_member(nothing, nothing, nothing) is None
