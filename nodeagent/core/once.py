# SPDX-License-Identifier: Apache-2.0
"""Reporting each change once."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """The value that was reported last."""

    def __init__(self) -> None:
        self._last: T | None = None

    def is_new(self, value: T) -> bool:
        """Return whether ``value`` differs from that of the previous call."""
        before, self._last = self._last, value
        return value != before

    def forget(self) -> bool:
        """Report the next value in any case. Return whether there was a value to forget."""
        last, self._last = self._last, None
        return last is not None
