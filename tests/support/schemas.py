# SPDX-License-Identifier: Apache-2.0
"""Check JSON by its schema."""

from __future__ import annotations

import json
from typing import Any

from nodeagent.cli import _schemas
from nodeagent.report import status_json
from nodeagent.report.status import Status


def status_to_dict(status: Status, *, daemon: str) -> dict[str, Any]:
    """Return the JSON of a status, which fits its schema. Without the name of a daemon it is that of a stopped one."""
    shown = status_json.status_to_dict(status, daemon=daemon)
    assert _schemas.check(json.loads(json.dumps({**shown, "daemon": daemon or "stopped"}))) == ""
    return shown


def assert_fitting(text: str) -> None:
    """Check each line of JSON that has a schema."""
    for line in text.splitlines():
        answer = json.loads(line)
        if isinstance(answer, dict) and "schema" in answer:
            assert _schemas.check(answer) == "", line
