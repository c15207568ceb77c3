# SPDX-License-Identifier: Apache-2.0
"""What the feature adds to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

WITHOUT: Final = ("write-sysroot",)
# A command of its own, which becomes ostree.
STARTS_PROGRAMS: Final = ("features/bootc/cli.py",)
