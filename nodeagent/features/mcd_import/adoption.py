# SPDX-License-Identifier: Apache-2.0
"""The config of a machine-config-daemon becomes the config that this host has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.features.mcd_import.files import current_config, originals
from nodeagent.update.ports.store import Snapshot


class Originals(Protocol):
    async def keep_originals(self, snapshots: Sequence[Snapshot]) -> None: ...


class Adoption:
    def __init__(self, store: Originals, root: str = "/") -> None:
        self._store = store
        self._root = root

    async def config(self) -> ConfigSource | None:
        """Return the config that the daemon applied last, None if there is none. The originals that it kept are stored.

        Raises ``InvalidInput`` (``AdoptionFailed``), and the errors of ``host.fs`` and of the store.
        """
        source = await asyncio.to_thread(current_config, self._root)
        if source is not None:
            # The originals come first: once the config is adopted, a kill must not lose them.
            await self._store.keep_originals(await asyncio.to_thread(originals, self._root))
        return source
