# SPDX-License-Identifier: Apache-2.0
"""What the fence adds to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

from nodeagent.features.fence.events import FenceChanged
from nodeagent.update.ports.events import UpdateContext
from nodeagent.update.states import Phase

EVENTS: Final = (FenceChanged(UpdateContext(Phase.ACTING, current="worker-1", desired="worker-2"), None, "ended"),)
# A fault in the fence, or in what it needs of the host, must not prevent an update.
FENCE: Final = "the fence is not imported where it is turned off"
LATER: Final = {
    ("features/fence/blockdev/find.py", "pyudev"): "needs executable memory",
    ("features/fence/host_fence.py", "nodeagent.features.fence.actuators.actuators"): FENCE,
    ("features/fence/host_fence.py", "nodeagent.features.fence.fence"): FENCE,
    ("features/fence/host_fence.py", "nodeagent.features.fence.sensors.sensors"): FENCE,
}
