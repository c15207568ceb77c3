# SPDX-License-Identifier: Apache-2.0
"""The output of a transaction: to its peers, or to the journal if the caller requested that.

TaskEnd always says "done". PercentProgress of counted work has the real daemon's wrong arithmetic: a percentage that
stays 0 until the last item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from integration.standins.rpmostreed.standin.gir import GLib
from integration.standins.rpmostreed.standin.log import log

Emit = Callable[..., None]  # (signal, *values)


class Output:
    def __init__(self, emit: Emit, *, to_self: bool = False) -> None:
        self._emit = emit
        self._to_self = to_self

    def message(self, text: str) -> None:
        if self._to_self:
            log(text)
        else:
            self._emit("Message", text)

    @contextmanager
    def task(self, text: str) -> Iterator[None]:
        """Ends in any case, as the real one's destructor does."""
        if self._to_self:
            log(f"{text}...")
            yield
            return
        self._emit("TaskBegin", text)
        try:
            yield
        finally:
            self._emit("TaskEnd", "done")

    @contextmanager
    def counted(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """Gives a function to call with the number of items done."""

        def update(done: int) -> None:
            percentage = 100 if done == total else int(done / (total * 100))
            if not self._to_self:
                self._emit("PercentProgress", f"{text} ({done}/{total})", percentage)

        if not self._to_self:
            self._emit("PercentProgress", text, 0)
        try:
            yield update
        finally:
            if not self._to_self:
                self._emit("ProgressEnd")

    @contextmanager
    def percent(self, text: str) -> Iterator[Callable[[int], None]]:
        """Gives a function to call with a percentage."""
        if self._to_self:
            log(f"{text}...")
            yield lambda _percentage: None
            return
        self._emit("PercentProgress", text, 0)
        try:
            yield lambda percentage: self._emit("PercentProgress", text, percentage)
        finally:
            self._emit("ProgressEnd")

    def progress_end(self) -> None:
        """Once after the base pull, of any kind, even when nothing was shown before. Never redirected."""
        self._emit("ProgressEnd")

    def signature(self, _repo: Any, checksum: str, result: Any) -> None:
        """A handler for gpg-verify-result."""
        signatures = [result.get_all(index) for index in range(result.count_all())]
        self._emit("SignatureProgress", signatures, checksum)

    def download(self, progress: Any) -> None:
        """A handler for `changed` of an OSTree.AsyncProgress: pulls from ostree remotes only."""
        status = progress.get_status()
        if status:
            self._emit("Message", status)
            return
        start = progress.get_uint64("start-time")
        elapsed = (GLib.get_monotonic_time() - start) // 1_000_000 if start else 0
        transferred = progress.get_uint64("bytes-transferred")

        def counts(*keys: str) -> tuple[int, ...]:
            return tuple(progress.get_uint(key) for key in keys)

        self._emit(
            "DownloadProgress",
            (start, elapsed),
            counts("outstanding-fetches", "outstanding-writes"),
            counts("scanned-metadata", "metadata-fetched", "outstanding-metadata-fetches"),
            (
                *counts("total-delta-parts", "fetched-delta-parts", "total-delta-superblocks"),
                progress.get_uint64("total-delta-part-size"),
            ),
            counts("fetched", "requested"),
            (transferred, transferred // elapsed if elapsed else 0),
        )
