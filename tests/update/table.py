# SPDX-License-Identifier: Apache-2.0
"""The table of the course as the states that may follow each state."""

from __future__ import annotations

from typing import Final

from nodeagent.update.course import COURSE, following

NEXT: Final = {state: following(state) for state in COURSE}
