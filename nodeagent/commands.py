# SPDX-License-Identifier: Apache-2.0
"""A command of the command line, as its name is listed before its module is imported."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """``help`` is a phrase without a capital and without a period. ``module`` has ``add_arguments`` and ``run``.

    ``after`` is the command of the base that it follows in lists; "": it is the last one.
    ``under`` is the command of which it is a subcommand; "" for none.
    """

    name: str
    help: str
    module: str
    after: str = ""
    under: str = ""

    @property
    def words(self) -> str:
        """Return its words on the command line."""
        return f"{self.under} {self.name}".lstrip()
