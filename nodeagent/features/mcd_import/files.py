# SPDX-License-Identifier: Apache-2.0
"""Read the state of a machine-config-daemon that ran on this host before: its current config and its backups.

The files are only read. That daemon may return, and its files are the only other copy.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.config.text import plain_json
from nodeagent.errors import InvalidInput
from nodeagent.features.mcd_import.reasons import ImportReason
from nodeagent.host.fs.files import DiskFiles
from nodeagent.host.fs.os_errors import translated
from nodeagent.update.ports.store import Snapshot

_HOME = "/etc/machine-config-daemon"
CURRENT_CONFIG = f"{_HOME}/currentconfig"

# Bytes; a rendered config of a large cluster has 2 MB.
CONFIG_LIMIT = 32 << 20

_ORIG = ".mcdorig"
_NO_ORIG = ".mcdnoorig"
_HINT = f"correct {CURRENT_CONFIG}, or move it away to start without a current config"


def current_config(root: str = "/") -> ConfigSource | None:
    """Return the config that the daemon applied last, None if there was no such daemon.

    Raises ``InvalidInput`` (``AdoptionFailed``) if the file is invalid. Without it, every managed file would count as a
    file of an admin.
    """
    node = DiskFiles(root, limit=CONFIG_LIMIT).capture(CURRENT_CONFIG)
    if node is None:
        return None
    if not isinstance(node, RegularFile):
        raise _refusal("it is a symbolic link")
    try:
        config = plain_json.loads(node.content)
        name = config["metadata"]["name"]
    except (ValueError, KeyError, TypeError) as error:
        raise _refusal("it is not a MachineConfig in JSON") from error
    if config.get("kind", "MachineConfig") != "MachineConfig" or not isinstance(name, str) or not name:
        raise _refusal("it is not a MachineConfig")
    return ConfigSource(name, hashlib.sha256(node.content).hexdigest(), node.content)


def originals(root: str = "/") -> list[Snapshot]:
    """Return the original files of the managed paths that the daemon kept, sorted by path.

    A stamp under ``noorig`` means that the path did not exist, and takes precedence. A backup under ``orig`` counts if
    the OS ships the path (``/usr/etc/...`` on an ostree host), because old versions of the daemon also backed up their
    own files. For any other backup the path counts as missing, as in that daemon.
    """
    disk = DiskFiles(root)
    snapshots: dict[str, Snapshot] = {}
    # The stamps come second, so that they replace a backup of the same path.
    for path in _below(root, f"{_HOME}/orig", _ORIG):
        node = disk.capture(f"{_HOME}/orig{path}{_ORIG}") if Path(f"{root}/usr{path}").exists() else None
        snapshots[path] = Snapshot(f"path:{path}", node=node)
    for path in _below(root, f"{_HOME}/noorig", _NO_ORIG):
        snapshots[path] = Snapshot(f"path:{path}")
    return [snapshots[path] for path in sorted(snapshots)]


def _below(root: str, folder: str, suffix: str) -> list[str]:
    """Return the managed paths that have a file in that tree."""
    start = Path(root) / folder.removeprefix("/")
    paths: list[str] = []
    with translated("read", folder):
        for place, _, names in os.walk(start, onerror=_fail):
            below = "/" / Path(place).relative_to(start)
            paths += [str(below / name.removesuffix(suffix)) for name in names if name.endswith(suffix)]
    return paths


def _fail(error: OSError) -> None:
    # os.walk would skip a directory that cannot be read, and its paths would count as files of an admin.
    if not isinstance(error, FileNotFoundError):
        raise error


def _refusal(what: str) -> InvalidInput:
    return InvalidInput(f"{CURRENT_CONFIG} cannot be adopted: {what}", reason=ImportReason.ADOPTION_FAILED, hint=_HINT)
