# SPDX-License-Identifier: Apache-2.0
"""What drift adds to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

from nodeagent.features.drift.events import DriftChanged

EVENTS: Final = (DriftChanged("worker-1", (), "the message"),)
