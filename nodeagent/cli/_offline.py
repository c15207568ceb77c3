# SPDX-License-Identifier: Apache-2.0
"""Read the store while the daemon does not run. It is opened for reading only."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nodeagent.cli._client import NEITHER
from nodeagent.cli._io import read
from nodeagent.core.config.ignition_document import as_machine_config
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.config.parse import parse
from nodeagent.errors import AgentError, InvalidInput, Refused, Terminal, Unreachable
from nodeagent.host.config_file import desired_file
from nodeagent.host.store.database import HISTORY_LIMIT, Reader
from nodeagent.host.store.opening import read_only_open
from nodeagent.reasons import Reason, hint
from nodeagent.report.parts.registry import part_views
from nodeagent.report.shown_config import config_to_dict
from nodeagent.report.status import recorded_status
from nodeagent.report.status_json import status_to_dict
from nodeagent.settings.load import load
from nodeagent.settings.schema import Settings
from nodeagent.update.history.entry import entry_to_dict, find_update, update_to_dict


def _store() -> AbstractContextManager[Reader]:
    try:
        directory = load().settings.state_dir
    except InvalidInput:
        # Invalid settings may be the reason why the daemon does not run.
        directory = Settings().state_dir
    return read_only_open(Path(directory, "state.db"))


@contextmanager
def _store_or(unreachable: Unreachable) -> Iterator[Reader]:
    """Yield the store. Raise an error that includes ``unreachable`` if the store cannot be read."""
    try:
        with _store() as store:
            yield store
    except AgentError as error:
        raise _both(unreachable, error) from error


@dataclass(frozen=True)
class Stored:
    """Answers from the store, in the form of those of the daemon. ``why`` is the error of the request to the daemon."""

    why: Unreachable

    def status(self) -> dict[str, Any]:
        """Return the status as the record has it. Raise an error with the reason if there is no store."""
        with _store_or(self.why) as store:
            digest = store.current()
            # The boot in which the record was written stays: the present one may be later.
            status = recorded_status(store.load(), store.get_config(digest).name if digest else "", digest)
            status = replace(status, lease=store.lease())
            # The daemon would show the same when it has started.
            for view in part_views():
                if (part := view.stored(store.note)) is not None:
                    status = status.with_part(part)
        return status_to_dict(status, daemon="stopped")

    def config(self, which: str, name: str, *, secrets: bool) -> dict[str, Any]:
        """Return a config of the store, or the desired config of this host, as ``Client.config`` does."""
        try:
            return config_to_dict(_source(which, name), secrets=secrets)
        # These answer the request. Any other error is about the store.
        except (InvalidInput, Refused):
            raise
        except AgentError as error:
            raise _both(self.why, error) from error

    def history(self, limit: int) -> list[dict[str, Any]]:
        with _store_or(self.why) as store:
            return [entry_to_dict(entry) for entry in store.history(limit)]

    def update(self, update_id: str) -> dict[str, Any]:
        """Return an update with its plan and its trail; ``update_id`` "" is the newest update that has ended."""
        with _store_or(self.why) as store:
            entries = store.history(HISTORY_LIMIT)
        return update_to_dict(find_update(entries, update_id))

    def plan(self, text: str, **options: bool) -> dict[str, Any]:
        """Return the plan of an update of this host. Raise an error with the reason if the store does not suffice."""
        # The store, managed files and password hashes are for root.
        if os.geteuid() != 0:
            hint = f"systemctl start nodeagent, or run it as root; {NEITHER}"
            message = f"{self.why.message}, and only root can plan from its store"
            raise Unreachable(message, reason=self.why.reason, hint=hint)
        from nodeagent.agent.offline import plan_offline

        try:
            return asyncio.run(plan_offline(text, options))
        except Unreachable as error:
            message = f"{self.why.message}, and a plan from its store failed: {error.message}"
            raise Unreachable(message, reason=error.reason, hint=f"{self.why.hint or error.hint}; {NEITHER}") from error


def _source(which: str, name: str) -> ConfigSource:
    # The file comes first: it can be read without a store.
    if which == "desired" and (desired := _desired()) is not None:
        return desired
    with _store() as store:
        if which == "named":
            source = store.config_named(name)
        elif which == "desired":
            # A cluster names it, and the store has the one that the agent read last.
            source = store.fetched()
        else:
            digest = store.current()
            source = store.get_config(digest) if digest else None
    if source is None and which == "named":
        raise InvalidInput(
            f"there is no config {name} in the store", reason=Reason.UNKNOWN_CONFIG, hint=hint(Reason.UNKNOWN_CONFIG)
        )
    if source is None:
        raise Refused(
            f"there is no {which} config yet",
            reason=Reason.NO_CURRENT_CONFIG,
            hint=hint(Reason.NO_CURRENT_CONFIG),
        )
    return source


def _desired() -> ConfigSource | None:
    """Return the config of the setting ``desired_config``; None where a cluster names it, or there is no file."""
    settings = load().settings
    if settings.cluster.source != "file":
        return None
    path = desired_file(settings.desired_config, settings.state_dir)
    text = as_machine_config(read(path))
    return ConfigSource(parse(text, path).name, hashlib.sha256(text).hexdigest(), text)


def stored_note(key: str) -> str:
    """Return a text that the agent keeps in its store; "" without one or without a store."""
    try:
        with _store() as store:
            return store.note(key)
    except Terminal as error:
        # An agent that never ran has kept nothing.
        if error.reason == Reason.NO_STORE:
            return ""
        raise


def _both(unreachable: Unreachable, error: AgentError) -> AgentError:
    """Return the error to report. A damaged store explains why the daemon does not run; a store that is missing or not
    readable for this user does not."""
    if isinstance(error, Terminal) and error.reason not in (Reason.NO_STORE, Reason.PERMISSION_DENIED):
        return error
    message = f"{unreachable.message}, and {error.message}"
    hint = unreachable.hint or error.hint
    if (unreachable.reason, error.reason) == (Reason.BUS_UNREACHABLE, Reason.NO_STORE):
        # As in a container or on a laptop, where no bus has to be put right.
        hint = f"run it on a host where nodeagent is installed (nodeagent selfcheck); {NEITHER}"
    return Unreachable(message, reason=unreachable.reason, hint=hint)
