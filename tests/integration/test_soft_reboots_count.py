# SPDX-License-Identifier: Apache-2.0
"""The count of soft reboots of a virtual machine, in which the guest's agent may be away."""

from __future__ import annotations

import pytest

from integration.hosts.errors import HostGone, HostTimeout
from integration.hosts.vm.virtual_machine import Vm


def test_no_answer_is_not_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits take HostGone for "not yet". On a busy machine the agent is away for longer than the deadline."""

    def silent(*_: object, **_options: object) -> None:
        raise HostTimeout("no answer")

    monkeypatch.setattr(Vm, "run", silent)
    with pytest.raises(HostGone, match="no answer"):
        _ = object.__new__(Vm).soft_reboots
