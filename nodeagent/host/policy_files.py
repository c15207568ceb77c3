# SPDX-License-Identifier: Apache-2.0
"""Read the policy files of this host."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nodeagent.core.plan.policy import MAX_BYTES, MAX_DROP_INS, RECOMMENDED, drop_in_directory, is_drop_in
from nodeagent.errors import AgentError, InvalidInput
from nodeagent.host.config_file import names_in, read_now
from nodeagent.reasons import Reason
from nodeagent.settings.schema import Settings


def read_policy_files(settings: Settings, without: Collection[str] = ()) -> Mapping[str, bytes | AgentError]:
    """Return the content of each policy file, or why it cannot be read; those of ``without`` are not read. Blocks.

    A directory that cannot be read has an error under its own path. The weakest file comes first.
    """
    files: dict[str, bytes | AgentError] = {}
    if settings.recommended_policy:
        files[RECOMMENDED] = _read(RECOMMENDED) or InvalidInput(
            f"{RECOMMENDED} does not exist", reason=Reason.NO_POLICY
        )
    if not (policy := settings.policy):
        return files
    directory = drop_in_directory(policy)
    try:
        names = [name for name in names_in(directory) if is_drop_in(name)]
        if len(names) > MAX_DROP_INS:
            raise InvalidInput(f"{directory} has {len(names)} files, more than {MAX_DROP_INS}", reason=Reason.TOO_LARGE)
    except AgentError as error:
        names, files[directory] = [], error
    for path in (policy, *(f"{directory}/{name}" for name in sorted(names))):
        if path in without:
            continue
        # A drop-in may have been removed since it was listed.
        if (text := _read(path)) is not None:
            files[path] = text
        elif path == policy != Settings().policy:
            files[path] = InvalidInput(f"{path} does not exist", reason=Reason.NO_POLICY)
    return files


def _read(path: str) -> bytes | AgentError | None:
    try:
        return read_now(path, MAX_BYTES)
    except AgentError as error:
        return error
