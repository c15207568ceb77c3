# SPDX-License-Identifier: Apache-2.0
"""The place of the images in the course of an update.

They are fetched, and compared with the host, before the update waits for its turn. Then the update writes links to
them, and the policy reloads systemd-sysext.service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nodeagent.core.config.fetched import digest_at
from nodeagent.core.config.file_tree import SymbolicLink
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.enumerated import enumerated
from nodeagent.core.plan.sides import NO_CONFIG
from nodeagent.core.plan.steps import RemovePath, WritePath
from nodeagent.errors import AgentError, InvalidInput, Refused
from nodeagent.features.extension_images.cache import ImageCache
from nodeagent.features.extension_images.decide import UNIT, Image, images, merged, merged_names, name_of, named_images
from nodeagent.features.extension_images.planned import PlannedImages, Read, note
from nodeagent.features.extension_images.reasons import ExtensionImageReason
from nodeagent.features.extension_images.release import extension_release, why_unfit
from nodeagent.update.next.preflight import Desired
from nodeagent.update.ports.host import UP, Units
from nodeagent.update.ports.store import Store
from nodeagent.update.run import Progress, Run, Update
from nodeagent.update.stages.compare import ENABLED
from nodeagent.update.stages.guard import Guard
from nodeagent.update.states import Phase

# Seconds until unused images are looked for again.
PRUNE_EVERY: Final = 3600.0

# Seconds between two looks at the mounts, and how many there are: the reload is over, and the mounts follow at once.
LOOK_EVERY: Final = 1.0
LOOKS: Final = 5


def _mountinfo() -> str:
    # The overlay of the host arrives below what ProtectSystem= mounts, so a file of it is not visible here.
    return Path("/proc/self/mountinfo").read_text(errors="replace")


class ImageGuard(Guard):
    """``mountinfo`` returns the text of proc_pid_mountinfo(5), ``unfit`` what ``release.why_unfit`` does, and ``read``
    what ``release.extension_release`` does."""

    def __init__(
        self,
        cache: ImageCache,
        store: Store,
        units: Units,
        load: Callable[[str], Awaitable[Desired]],
        mountinfo: Callable[[], str] = _mountinfo,
        unfit: Callable[[str, str], Awaitable[str]] = why_unfit,
        read: Read = extension_release,
    ) -> None:
        self._cache, self._store, self._units, self._load = cache, store, units, load
        self._mountinfo, self._unfit = mountinfo, unfit
        self._planned = PlannedImages(cache, read)
        # Names and digests that were compared with this OS. An update that waits asks again, for hours.
        self._compared: set[tuple[str, str]] = set()
        # The current and the previous config of the last look for images that nothing needs.
        self._pruned = ("", "")

    def fetches(self) -> bool:
        return self._cache.settings.max_bytes > 0

    async def planned(self, update: Update, *, stops_node: bool) -> Sequence[str]:  # noqa: ARG002
        notes = [await self._note(image) for image in await self._planned.to_list(update)]
        if names := merged_names(update.new):
            if not await self._is_enabled(update.new):
                notes.append(f"warning: {UNIT} is not enabled, so no boot merges {enumerated(names)}")
            elif any(_written(update)) and not update.plan.reboot:
                notes.append(f"{UNIT} merges into /usr while services run; the policy names those that restart")
        return notes

    async def files_plan(self, update: Update) -> Mapping[str, Any]:
        planned = await self._planned.to_list(update)
        return {"images": planned} if planned else {}

    async def fetch(self, run: Run) -> None:
        for image in _written(run.update):
            if not await self._cache.is_here(image.path, image.digest):
                await self._cache.fetch(image)
        # The next OS merges them, if there is one.
        if run.update.target is None and await self._is_enabled(run.update.new):
            await self._compare(run.update)

    async def _compare(self, update: Update) -> None:
        """Compare the images that the update writes with this OS. Raises ``Refused`` (``ExtensionUnfit``)."""
        written = set(_written(update))
        for name, image in named_images(update.new):
            if image not in written or (name, image.digest) in self._compared:
                continue
            if cause := await self._unfit(await self._cache.place(image), name):
                message = f"systemd-sysext would not merge the image {image}: in its extension-release, {cause}"
                raise Refused(message, reason=ExtensionImageReason.EXTENSION_UNFIT)
            self._compared.add((name, image.digest))

    async def before_disruption(self, run: Run) -> None:
        """Keep what is in the places of images by its digest, so that the store keeps a link to it for a revert."""
        for image in _written(run.update):
            target = await self._cache.adopt(image.path, image.digest)
            if target is not None:
                await run.ports.files.install(image.path, SymbolicLink(target))

    async def verify(self, run: Run, progress: Progress) -> None:  # noqa: ARG002
        config = await self._previous() if run.record.reverting else run.update.new
        names = set(merged_names(config))
        if run.update.target is None:
            # An admin may have masked another one.
            names &= {name_of(step.path) for step in run.update.writes if isinstance(step, WritePath | RemovePath)}
        if not names:
            return
        state = await self._units.state(UNIT)
        # Then no boot merges anything either.
        if state.active not in UP and state.file not in ENABLED:
            # The plan has warned.
            return
        missing: Sequence[str] = ()
        # The job of the reload ends when its main process does, and the mounts may appear a moment later.
        for look in range(LOOKS):
            await asyncio.sleep(LOOK_EVERY if look else 0)
            there = merged(await asyncio.to_thread(self._mountinfo))
            missing = [] if there is None else sorted(names - there)
            if not missing:
                return
        message = f"{UNIT} did not merge {enumerated(missing)}"
        raise Refused(message, reason=ExtensionImageReason.EXTENSION_NOT_MERGED)

    async def prune(self) -> float | None:
        """Remove images that nothing needs any more. Returns the seconds until the next look."""
        if (await self._store.load()).phase is not Phase.IDLE:
            return PRUNE_EVERY
        digests = (await self._store.current(), await self._store.previous())
        # A large config takes a moment to parse, and this is called in each turn of the loop.
        if digests == self._pruned:
            return PRUNE_EVERY
        used: set[str] = set()
        for digest in digests:
            try:
                config = (await self._load(digest)).config if digest else None
            except InvalidInput:
                # This version does not accept it, so what it needs is not known.
                return PRUNE_EVERY
            if config is not None:
                used.update(await self._needed(config))
        await self._cache.prune(used)
        self._pruned = digests
        return PRUNE_EVERY

    async def _previous(self) -> MachineConfig:
        digest = await self._store.current()
        return (await self._load(digest)).config if digest else NO_CONFIG

    async def _needed(self, config: MachineConfig) -> Iterator[str]:
        """Return the digests that a config needs, and those of what comes back at its paths."""
        wanted = images(config)
        originals = [await self._store.original(f"path:{path}") for path in wanted]
        links = [original.node for original in originals if original is not None]
        targets = [link.target for link in links if isinstance(link, SymbolicLink)]
        return iter((*(image.digest for image in wanted.values()), *map(digest_at, targets)))

    async def _is_enabled(self, config: MachineConfig) -> bool:
        entry = config.units.get(UNIT)
        if entry is not None and entry.enabled is not None:
            return entry.enabled and not entry.mask
        try:
            return (await self._units.state(UNIT)).file in ENABLED
        except AgentError:
            # The update waits for systemd, and a plan does not.
            return True

    async def _note(self, image: Mapping[str, Any]) -> str:
        after = image["after"]
        here = after is not None and await self._cache.is_here(image["path"], after["digest"])
        return note(image, here=here)


def _written(update: Update) -> Iterator[Image]:
    """Yield the images whose links the update writes."""
    wanted = images(update.new)
    return (wanted[step.path] for step in update.writes if isinstance(step, WritePath) and step.path in wanted)
