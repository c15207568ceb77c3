# SPDX-License-Identifier: Apache-2.0
"""Accept sections that no running host can take, keep what the host was installed with, and report the difference.

The first current config has what the host was installed with. Later ones differ from it only where a section was
accepted, so one note in the store is all that is kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import InvalidInput
from nodeagent.features.irreconcilable.decide import HOW, Sections, differing, from_text, to_text
from nodeagent.features.irreconcilable.events import SectionsLeftOut
from nodeagent.features.irreconcilable.settings import ACCEPTABLE, IrreconcilableSettings
from nodeagent.update.next.preflight import Desired
from nodeagent.update.ports.host import Reporter
from nodeagent.update.ports.store import Store
from nodeagent.update.run import Run
from nodeagent.update.stages.guard import Guard

NOTE: Final = "installed-sections"


class SectionsGuard(Guard):
    acceptable = ACCEPTABLE

    def __init__(
        self,
        settings: IrreconcilableSettings,
        store: Store,
        reporter: Reporter,
        load: Callable[[str], Awaitable[Desired]],
    ) -> None:
        self.settings = settings
        self._store = store
        self._reporter = reporter
        self._load = load
        self._reported: tuple[str, ...] = ()
        # The current config of the last look.
        self._digest = ""

    def use(self, settings: IrreconcilableSettings) -> None:
        self.settings = settings

    def accepts(self) -> Collection[str]:
        return self.settings.accept

    async def as_installed(self, old: MachineConfig, new: MachineConfig) -> Collection[str]:
        # A plan keeps nothing.
        if (installed := from_text(await self._store.note(NOTE))) is None:
            return ()
        changed = differing(old.unapplied, new.unapplied)
        later = differing(installed, new.unapplied)
        return [section for section in changed if section not in later and section.partition("[")[0] in ACCEPTABLE]

    async def before_disruption(self, run: Run) -> None:
        # A host that has this feature for the first time may take another config before it rests.
        if run.update.basis is not None:
            await self._installed(run.update.basis.config.unapplied)

    async def not_compared(self, config: MachineConfig) -> Mapping[str, str]:
        installed = await self._installed(config.unapplied)
        return dict.fromkeys(differing(installed, config.unapplied), f"is not applied: {HOW}")

    async def look(self) -> None:
        """Report what of the current config this host does not have, when it has changed."""
        digest = await self._store.current()
        if not digest or digest == self._digest:
            return
        # A large config takes a moment to parse, and this is called in each turn of the loop.
        try:
            unapplied = (await self._load(digest)).config.unapplied
        except InvalidInput:
            # The base reports a stored config that this version does not accept.
            return
        sections = differing(await self._installed(unapplied), unapplied)
        # Only now: an error of the store is tried again.
        self._digest = digest
        if sections != self._reported:
            self._reported = sections
            self._reporter.emit(SectionsLeftOut(sections))

    async def _installed(self, present: Sections) -> Sections:
        """Return what the host was installed with. It is ``present``, if nothing was kept yet."""
        installed = from_text(await self._store.note(NOTE))
        # A damaged note is one as well: the host is compared with what it has by now.
        if installed is None:
            await self._store.keep_note(NOTE, to_text(present))
            return present
        return installed
