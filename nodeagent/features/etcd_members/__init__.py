# SPDX-License-Identifier: Apache-2.0
"""Join, leave and replacement of the etcd member on this host."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Command


def _command(name: str, words: str, no_json: str = "") -> Command:
    return Command(name, words, f"{__name__}.cli.{name}", under="etcd", no_json=no_json)


COMMANDS: Final = (
    _command("join", "make this host a member: learner first, promoted when it is in sync"),
    _command("leave", "remove the member of this host; its data are kept"),
    _command("replace", "remove a lost member, then join this host in its place"),
    _command(
        "prepare",
        "permit the start of etcd and write its config; for etcd.service",
        "a unit runs it, and reads the exit status",
    ),
)
