# SPDX-License-Identifier: Apache-2.0
"""The daemon starts with a damaged restore log."""

from __future__ import annotations

from functools import partial

import pytest

from nodeagent.features.fence import host_fence
from nodeagent.features.fence.host_fence import recover
from tests.agent.lived_in import host, is_useful, lived_in
from tests.agent.whole_daemon import WholeDaemon
from tests.support import damage
from tests.support.needs import acts_as_root

__all__ = ["host"]


@pytest.mark.long
@pytest.mark.finding(
    "daemon: leftovers, daemon: no bug ends it",
    "A damaged restore log of the fence does not keep the agent from starting, and names of processes and mount "
    "points of any bytes do not switch the fence off.",
)
@acts_as_root
async def test_a_damaged_restore_log_of_the_fence(host: WholeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    await lived_in(host)
    for way, damaged in damage.FILES.items():
        entries = host.directory / way
        entries.mkdir()
        monkeypatch.setattr(host_fence, "recover", partial(recover, path=entries))
        for name in ("disk-8:0", "unit-rpm-ostreed.service", "x"):
            path = entries / f"{name}.undo"
            path.write_text("{}")
            damaged(path)
        status = await is_useful(host)
        assert (status["phase"], status["reason"]) == ("Degraded", "VerifyFailed"), way
