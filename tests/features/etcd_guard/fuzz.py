# SPDX-License-Identifier: Apache-2.0
"""The answer of `nodeagent etcd status`, from surveys of any form."""

from __future__ import annotations

import json
from typing import Final

from integration.fuzz.servers import SURVEYS, surveyed
from integration.fuzz.target import Target
from nodeagent.core.etcd.quorum import judge
from nodeagent.features.etcd_guard.quorum import QuorumReport, answer


def status(data: bytes) -> None:
    if (found := surveyed(data)) is not None:
        json.dumps(answer(QuorumReport(("data",), judge(found), found), "daemon"))


TARGETS: Final = (Target("etcd-status", status, SURVEYS),)
