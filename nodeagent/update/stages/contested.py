"""Managed paths that others than root can reach, such as those below the home directory of ``core``.

The owner of a directory can replace everything in it at any time. So what is found at such a path is reported, and
never a verdict: it blocks this one file, not the update, the drift check or the verification of everything else.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import ssh_keys_path
from nodeagent.errors import AgentError
from nodeagent.reasons import Reason
from nodeagent.update.events import Warned
from nodeagent.update.record import Record
from nodeagent.update.run import Ports, Update, narrate

# The group counts as well: its members are not root.
_OTHERS_WRITE = 0o022


async def divide(
    ports: Ports, config: MachineConfig, wrong: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Divide what ``verify.mismatches`` found for ``config``: what only root can have caused, and what others can
    have. Of the latter each message says who."""
    strict: dict[str, str] = {}
    loose: dict[str, str] = {}
    for entry, why in wrong.items():
        who = await _others(ports, config, entry)
        if who:
            loose[entry] = f"{why} ({who})"
        else:
            strict[entry] = why
    return strict, loose


async def left_alone(ports: Ports, update: Update, path: str, error: AgentError) -> bool:
    """Report that ``path`` could not be written, read or removed, if others than root can be the cause."""
    who = await ports.files.contested(path)
    if who:
        narrate(ports, update.record, Warned, f"left alone: {error} ({who})", Reason.PATH_CONTESTED)
    return bool(who)


def report(ports: Ports, found: Mapping[str, str], record: Record) -> None:
    for entry, why in sorted(found.items()):
        narrate(ports, record, Warned, f"{entry} is not as desired: {why}", Reason.PATH_CONTESTED)


async def _others(ports: Ports, config: MachineConfig, entry: str) -> str:
    """Return who besides root can change what ``entry`` is about; "" if only root can."""
    domain, _, key = entry.partition(":")
    match domain:
        case "file":
            # The config itself gives such a file away, and its owner may write to it at any time.
            file = config.files.get(key)
            if file is not None and file.user not in (0, "root"):
                return f"the file belongs to {file.user}"
            if file is not None and file.mode & _OTHERS_WRITE:
                return "others than root may write to the file"
            return await ports.files.contested(key)
        case "sshkey":
            return await ports.files.contested(ssh_keys_path(key))
        case _:
            return ""
