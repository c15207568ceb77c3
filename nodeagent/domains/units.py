"""systemd units and drop-ins. The policy has their actions; this domain only checks that systemd can load them."""

from __future__ import annotations

from typing import Final

from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import UNIT_TYPES
from nodeagent.core.plan.domain import Checker, Domain
from nodeagent.core.validate import unit_file

PATHS: Final = (*(f"{UNIT_DIR}/*.{kind}" for kind in UNIT_TYPES), f"{UNIT_DIR}/*.d/*.conf")

DOMAIN: Final = Domain(
    name="units",
    title="systemd units",
    contents=dict.fromkeys(PATHS, unit_file.check),
    # Only the installed systemd knows which directives it has.
    checkers=dict.fromkeys(PATHS, Checker.SYSTEMD_ANALYZE),
)
