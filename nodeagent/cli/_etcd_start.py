# SPDX-License-Identifier: Apache-2.0
"""The answer of ``nodeagent etcd prepare`` for the start of etcd on this host."""

from __future__ import annotations

import asyncio

from nodeagent.cli._offline import stored_note
from nodeagent.core.etcd.data_directory import Identity
from nodeagent.core.etcd.membership import NOTE_KEY, note_from_text
from nodeagent.errors import InvalidInput, Terminal
from nodeagent.host.etcd import member_host
from nodeagent.host.etcd.member_config import MEMBER_FILE, read_member_config
from nodeagent.reasons import Reason, hint


def permit_start() -> int:
    """Answer for the start of etcd, with or without a daemon: etcd may start before it."""
    note = _note()

    async def prepare() -> None:
        config = await read_member_config()
        if config is None:
            reason = Reason.ETCD_NOT_CONFIGURED
            raise InvalidInput("this host has no settings for a member of etcd", reason=reason, hint=hint(reason))
        await member_host.prepare(config, note)

    asyncio.run(prepare())
    print(f"etcd may start with {MEMBER_FILE}")
    return 0


def _note() -> Identity | None:
    """Return the identity that this host had last. The start of etcd is decided without one, too."""
    try:
        return note_from_text(stored_note(NOTE_KEY)).identity
    except (ValueError, TypeError) as error:
        raise Terminal(f"the note of the etcd member: {error}", reason=Reason.STORE_CORRUPT) from error
