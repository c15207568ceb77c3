"""The sudo rules. One syntax error in any file makes sudo refuse all users."""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.domain import Checker, Domain

DOMAIN: Final = Domain(
    name="sudoers",
    title="sudo rules",
    checkers={"/etc/sudoers": Checker.VISUDO, "/etc/sudoers.d/": Checker.VISUDO},
)
