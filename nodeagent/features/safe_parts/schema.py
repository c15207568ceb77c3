# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final

from nodeagent.contract.keys import Keys, about
from nodeagent.contract.shared import Blocked


class Parts(Keys):
    safe: Annotated[list[str], about("entries that would be applied at once")]
    waits: Annotated[list[Blocked], about("entries that would wait")]


PLAN: Final = {
    "parts": Annotated[Parts, about("what would be applied and what would wait, if the rest of the config is blocked")]
}
