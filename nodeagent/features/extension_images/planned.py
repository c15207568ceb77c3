# SPDX-License-Identifier: Apache-2.0
"""What a plan shows of the images that an update brings, replaces and takes away.

The version and the wishes of an image are in its extension-release, which only an image of this host can show. A plan
fetches nothing, so what is not here yet is compared by its digest alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.enumerated import enumerated
from nodeagent.core.plan.sides import NO_CONFIG
from nodeagent.features.extension_images.cache import ImageCache
from nodeagent.features.extension_images.decide import Image, images, named_images, version_of, wishes_of
from nodeagent.update.run import Update

# Images whose extension-release one plan reads: each is a mount.
MOST_READ: Final = 8
# Of those that were read. An image does not change under its digest.
MOST_KEPT: Final = 64

# Reads the extension-release of the image in a file, which is merged under a name; None if that is not possible.
Read = Callable[[str, str], Awaitable[Mapping[str, str] | None]]


@dataclass(frozen=True, slots=True)
class ImageChange:
    """``name`` is that under which systemd-sysext merges the images. ``new`` None: it leaves the config."""

    name: str
    old: Image | None
    new: Image | None

    @property
    def path(self) -> str:
        image = self.new or self.old
        assert image is not None
        return image.path

    @property
    def kind(self) -> str:
        if self.new is None:
            return "removed"
        return "added" if self.old is None else "modified"


def changes(old: MachineConfig, new: MachineConfig) -> Iterator[ImageChange]:
    """Yield how the images differ, by name. An image in another place under the same name replaces the one there."""
    were, are = _by_name(old), _by_name(new)
    for name in sorted({*were, *are}):
        before, after = were.get(name), are.get(name)
        if before is None or after is None or before.digest != after.digest:
            yield ImageChange(name, before, after)


def _by_name(config: MachineConfig) -> Mapping[str, Image]:
    """Return the images by the names under which they are merged, or by those of their files."""
    merged = {image.path: name for name, image in named_images(config)}
    return {merged.get(path, image.name): image for path, image in images(config).items()}


class PlannedImages:
    """``read`` is used by one plan at a time."""

    def __init__(self, cache: ImageCache, read: Read) -> None:
        self._cache, self._read = cache, read
        self._kept: dict[tuple[str, str], Mapping[str, str]] = {}
        self._left = 0
        self._alone = asyncio.Lock()

    async def to_list(self, update: Update) -> Sequence[Mapping[str, Any]]:
        """Return the images of a plan as JSON data."""
        planned = []
        async with self._alone:
            self._left = MOST_READ
            for change in changes(_old(update), update.new):
                before = await self._side(change.old, await self._release(change.old, change.name))
                release = await self._release(change.new, change.name)
                wishes = wishes_of(release) if release is not None else None
                because = f"file:{change.path}"
                planned.append(
                    {
                        "name": change.name,
                        "path": change.path,
                        "change": change.kind,
                        "before": before,
                        "after": await self._side(change.new, release),
                        "source": change.new.server if change.new is not None else "",
                        "reloads_manager": wishes.reloads_manager if wishes is not None else None,
                        "names_units": list(wishes.units) if wishes is not None else [],
                        "units": [
                            action.unit for action in update.plan.actions if action.unit and because in action.because
                        ],
                    }
                )
        return planned

    async def _release(self, image: Image | None, name: str) -> Mapping[str, str] | None:
        """Return the extension-release of an image, None if it is not known."""
        if image is None:
            return None
        key = (image.digest, name)
        if key not in self._kept and self._left and await self._cache.size(image) is not None:
            self._left -= 1
            if (release := await self._read(await self._cache.place(image), name)) is not None:
                if len(self._kept) >= MOST_KEPT:
                    self._kept.clear()
                self._kept[key] = release
        return self._kept.get(key)

    async def _side(self, image: Image | None, release: Mapping[str, str] | None) -> Mapping[str, Any] | None:
        if image is None:
            return None
        version = version_of(release) if release is not None else ""
        return {"digest": image.digest, "bytes": await self._cache.size(image), "version": version}


def _old(update: Update) -> MachineConfig:
    return update.basis.config if update.basis is not None else NO_CONFIG


def note(image: Mapping[str, Any], *, here: bool) -> str:
    """Return the line of a plan about one image of ``PlannedImages.to_list``. ``here``: its path has it already."""
    before, after = image["before"], image["after"]
    if after is None:
        return f"image {image['name']} {_words(before)}: it leaves"
    text = f"image {image['name']} {_words(after)}: {_where(image, here=here)}"
    if before is not None:
        text += f"; it replaces {_words(before).strip('()')}"
    if image["reloads_manager"]:
        text += "; it makes systemd read its units again (EXTENSION_RELOAD_MANAGER)"
    if image["names_units"]:
        text += f"; systemd 261 and later restart what it names, {enumerated(image['names_units'])}"
    return text


def _words(side: Mapping[str, Any]) -> str:
    kind, _, digits = side["digest"].partition("-")
    version = f", version {side['version']}" if side["version"] else ""
    size = f", {side['bytes']} bytes" if side["bytes"] is not None else ""
    return f"({kind}-{digits[:12]}{version}{size})"


def _where(image: Mapping[str, Any], *, here: bool) -> str:
    if image["after"]["bytes"] is not None:
        return "on this host already"
    if here:
        return f"{image['path']} has it already"
    return f"fetched from {image['source']} before the update waits for its turn"
