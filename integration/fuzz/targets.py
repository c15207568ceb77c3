# SPDX-License-Identifier: Apache-2.0
"""All targets, by name."""

from __future__ import annotations

from typing import Final

from integration.fuzz import api, bus, documents, records, servers
from integration.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {
    target.name: target for module in (api, bus, documents, records, servers) for target in module.TARGETS
}
