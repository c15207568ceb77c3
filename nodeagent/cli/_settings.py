# SPDX-License-Identifier: Apache-2.0
"""The settings of this machine for a command that works without them, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nodeagent.errors import InvalidInput
from nodeagent.installed import doors
from nodeagent.settings.load import load
from nodeagent.settings.schema import Settings


def valid_settings() -> Settings:
    """Return the settings, the built-in ones where they are invalid."""
    try:
        return load().settings
    # nodeagent settings check reports them. The files are most likely at their usual paths.
    except InvalidInput:
        return Settings()


def sections() -> tuple[Collection[str], Mapping[str, str]]:
    """Return the sections of a config that hosts with these settings accept, and the key of the setting of each that
    can be accepted."""
    settings = valid_settings()
    accepted = {section for door in doors() for section in door.accepts(settings)}
    return accepted, {section: key for door in doors() for section, key in door.acceptable.items()}
