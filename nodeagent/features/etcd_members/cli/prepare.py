# SPDX-License-Identifier: Apache-2.0
"""`nodeagent etcd prepare`: the answer for the start of etcd on this host, with or without a daemon.

etcd may start before the daemon.
"""

from __future__ import annotations

import argparse
import asyncio

from nodeagent.cli._offline import stored_note
from nodeagent.core.etcd.data_directory import Identity
from nodeagent.errors import InvalidInput, Terminal
from nodeagent.features.etcd_members import host
from nodeagent.features.etcd_members.config import MEMBER_FILE, read_member_config
from nodeagent.features.etcd_members.decide.membership import NOTE_KEY, note_from_text
from nodeagent.features.etcd_members.reasons import MemberReason
from nodeagent.reasons import Reason, hint


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    pass


def run(_args: argparse.Namespace) -> int:
    note = _note()

    async def prepare() -> None:
        config = await read_member_config()
        if config is None:
            reason = MemberReason.ETCD_NOT_CONFIGURED
            raise InvalidInput("this host has no settings for a member of etcd", reason=reason, hint=hint(reason))
        await host.prepare(config, note)

    asyncio.run(prepare())
    print(f"etcd may start with {MEMBER_FILE}")
    return 0


def _note() -> Identity | None:
    """Return the identity that this host had last. The start of etcd is decided without one, too."""
    try:
        return note_from_text(stored_note(NOTE_KEY)).identity
    except (ValueError, TypeError) as error:
        raise Terminal(f"the note of the etcd member: {error}", reason=Reason.STORE_CORRUPT) from error
