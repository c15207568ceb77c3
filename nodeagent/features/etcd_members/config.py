# SPDX-License-Identifier: Apache-2.0
"""Read etcd's config file, and write the one with which etcd runs.

The written file has two more keys: the members of the cluster, and ``existing``. It is in memory, so that the file of
an earlier boot cannot start a member.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nodeagent.core.config.text import document
from nodeagent.errors import InvalidInput
from nodeagent.features.etcd_members.reasons import MemberReason
from nodeagent.features.etcd_members.settings import MEMBER_SETTINGS, MemberSettings, parse_member_settings
from nodeagent.host import config_file
from nodeagent.host.etcd.options import Options, from_config
from nodeagent.host.fs.atomic import new_file
from nodeagent.host.fs.os_errors import translated

MEMBER_FILE: Final = Path("/run/nodeagent/etcd/member.json")
# nodeagent knows the present members; a list in a file of the admin would be that of the installation.
OURS: Final = ("initial-cluster", "initial-cluster-state")
# A write-ahead log elsewhere would not be archived with the data. The other keys choose the members.
UNSUPPORTED: Final = (*OURS, "wal-dir", "force-new-cluster", "discovery", "discovery-srv", "discovery-endpoints")
# Without secrets, and etcd need not run as root.
MODE: Final = 0o644


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files, "" for none."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """``document`` is etcd's config file; the rest is taken from it."""

    settings: MemberSettings
    document: Mapping[str, Any]
    name: str
    data: Path
    peers: tuple[str, ...]
    client_tls: TlsFiles
    peer_tls: TlsFiles

    @property
    def options(self) -> Options:
        return Options(from_config(self.document))


async def read_member_config(path: str = MEMBER_SETTINGS) -> MemberConfig | None:
    """Return None if this host has no settings of a member. Raises ``InvalidInput`` (``EtcdConfigInvalid``, ...)."""
    text = await config_file.read(path)
    if text is None:
        return None
    settings = await asyncio.to_thread(parse_member_settings, text)
    config = await config_file.read(settings.config)
    if config is None:
        raise invalid(settings.config, "there is no such file")
    return await asyncio.to_thread(_parse, settings, config)


def _parse(settings: MemberSettings, text: bytes) -> MemberConfig:
    try:
        options = document.load(text, settings.config)
    except InvalidInput as error:
        error.reason = MemberReason.ETCD_CONFIG_INVALID
        raise
    if not isinstance(options, dict):
        raise invalid(settings.config, "it is no mapping")
    for key in UNSUPPORTED:
        if options.get(key):
            raise invalid(settings.config, f"{key} is not supported: nodeagent sets the members of the cluster")
    name, data, peers = (_text(settings, options, key) for key in ("name", "data-dir", "initial-advertise-peer-urls"))
    # etcd resolves a relative path in its own working directory, which this process does not know.
    if not data.startswith("/"):
        raise invalid(settings.config, "data-dir must be an absolute path")
    return MemberConfig(
        settings,
        options,
        name,
        Path(data),
        tuple(url.strip() for url in peers.split(",") if url.strip()),
        _tls(options.get("client-transport-security")),
        _tls(options.get("peer-transport-security")),
    )


def _text(settings: MemberSettings, document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise invalid(settings.config, f"{key} is missing")
    return value


def _tls(section: object) -> TlsFiles:
    if not isinstance(section, dict):
        return TlsFiles()
    return TlsFiles(*(str(section.get(key) or "") for key in ("trusted-ca-file", "cert-file", "key-file")))


def write_member_file(config: MemberConfig, initial_cluster: str, path: Path = MEMBER_FILE) -> None:
    """Write the config of etcd with these members. Blocks.

    A member with data does not read them: then the only member is this one, with which it cannot start without data.
    """
    written = _written(config, initial_cluster)
    with translated("write", str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # The umask of the daemon leaves it to root.
            os.fchmod(folder, 0o755)
            with new_file(folder, path.name, mode=MODE) as write:
                write(written)
        finally:
            os.close(folder)


def _written(config: MemberConfig, initial_cluster: str) -> bytes:
    # Always ``existing``: with ``new``, a member without data would found another cluster.
    members = initial_cluster or ",".join(f"{config.name}={peer}" for peer in config.peers)
    # JSON is YAML, too, and every parser of YAML reads its strings as strings.
    return json.dumps({**config.document, OURS[0]: members, OURS[1]: "existing"}, indent=2).encode() + b"\n"


def forget_other_members(config: MemberConfig, path: Path = MEMBER_FILE) -> None:
    """Remove the members of its first start from the config of a member with data. Blocks.

    The kubelet restarts a container without ``prepare``: with them, etcd would start on an empty disk under its old id.
    """
    with translated("read", str(path)):
        if path.exists() and path.read_bytes() != _written(config, ""):
            write_member_file(config, "", path)


def remove_member_file(path: Path = MEMBER_FILE) -> None:
    """Blocks."""
    with translated("remove", str(path)):
        path.unlink(missing_ok=True)


def invalid(path: str, cause: str) -> InvalidInput:
    """Return the error for a file that has the member's configuration."""
    return InvalidInput(f"{path}: {cause}", reason=MemberReason.ETCD_CONFIG_INVALID)
