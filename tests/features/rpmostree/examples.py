# SPDX-License-Identifier: Apache-2.0
"""What rpm-ostree adds to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

WITHOUT: Final = ("fetch-extensions",)
