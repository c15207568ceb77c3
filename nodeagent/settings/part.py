# SPDX-License-Identifier: Apache-2.0
"""The settings of a feature: a part of the settings that its folder declares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from nodeagent.installed import doors

if TYPE_CHECKING:
    from nodeagent.settings.schema import Settings

# The keys that contradict each other, and how.
Contradiction = tuple[tuple[str, ...], str]


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a feature. Its docstring explains each key, as in ``schema.Settings``."""

    # The group of the keys, which may have keys of other features and of the base, too; "" for keys without a group.
    group: ClassVar[str] = ""
    # Whether a change takes effect with the next start only.
    needs_restart: ClassVar[bool] = False

    def contradictions(self, settings: Settings) -> Iterator[Contradiction]:  # noqa: ARG002 - for features
        """Yield every pair of these settings, or of one of them and others, that cannot both take effect."""
        yield from ()

    def check_host(self) -> None:
        """Check what only this host can tell, such as a time zone. It may block.

        Raises ``InvalidInput`` with a problem whose path is the key.
        """

    def notes(self) -> Iterator[str]:
        """Yield what the values mean on this host, for a list of the settings. It may block."""
        yield from ()


def parts() -> Sequence[type[Part]]:
    """Return the parts of the installed features."""
    return [part for door in doors() for part in door.settings]
