# SPDX-License-Identifier: Apache-2.0
"""The config of a machine-config-daemon is adopted together with its backups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeagent.errors import Terminal
from nodeagent.features.mcd_import.adoption import Adoption
from nodeagent.reasons import Reason
from nodeagent.update.ports.store import Snapshot
from tests.features.mcd_import.test_files import CONFIG, home

__all__ = ["home"]


class Store:
    def __init__(self, error: Terminal | None = None) -> None:
        self.kept: list[Sequence[Snapshot]] = []
        self._error = error

    async def keep_originals(self, snapshots: Sequence[Snapshot]) -> None:
        if self._error is not None:
            raise self._error
        self.kept.append(snapshots)


async def test_the_originals_are_stored_with_the_config(home: Path, tmp_path: Path) -> None:
    (home / "currentconfig").write_bytes(CONFIG)
    (home / "noorig/etc").mkdir(parents=True)
    (home / "noorig/etc/app.mcdnoorig").touch()
    store = Store()
    source = await Adoption(store, str(tmp_path)).config()
    assert source is not None
    assert source.name == "rendered-1"
    assert store.kept == [[Snapshot("path:/etc/app")]]


async def test_no_config_is_adopted_without_its_originals(home: Path, tmp_path: Path) -> None:
    (home / "currentconfig").write_bytes(CONFIG)
    with pytest.raises(Terminal):
        await Adoption(Store(Terminal("full", reason=Reason.STORE_FAULT)), str(tmp_path)).config()


async def test_a_host_without_such_a_daemon(tmp_path: Path) -> None:
    store = Store()
    assert await Adoption(store, str(tmp_path)).config() is None
    assert store.kept == []
