# SPDX-License-Identifier: Apache-2.0
"""What certificates add to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

WITHOUT: Final = ("bootstrap",)
# A command of its own, outside of an update.
STARTS_PROGRAMS: Final = ("features/certificates/directory.py",)
