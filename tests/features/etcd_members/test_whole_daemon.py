# SPDX-License-Identifier: Apache-2.0
"""The feature in the whole daemon."""

from __future__ import annotations

import pytest

from nodeagent.features.etcd_members.manager import MemberManager
from tests.agent.test_daemon_starts import host, private_bus, survives_bugs_of
from tests.agent.whole_daemon import WholeDaemon
from tests.support.needs import acts_as_root

__all__ = ["host", "private_bus"]


@pytest.mark.finding(
    "daemon: a start with damaged files, daemon: no bug ends it",
    "A bug in the start, in a maintenance or in a change of the etcd member is reported and tried again; it does not "
    "end each new process.",
)
@acts_as_root
async def test_a_bug_of_the_member_does_not_end_the_daemon(host: WholeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    await survives_bugs_of(MemberManager, host, monkeypatch)
