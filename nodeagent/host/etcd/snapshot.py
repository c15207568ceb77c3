# SPDX-License-Identifier: Apache-2.0
"""Save a snapshot of the keyspace of etcd to a file.

The gateway sends one JSON object for each piece of 32 KiB. The last 32 bytes of a snapshot are the SHA-256 of the bytes
before them (mvcc's ``Snapshot``); a file is there only if they are right. It has all secrets of the cluster, so only
its owner can read it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
import threading
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Final

from nodeagent.core.config.text import plain_json
from nodeagent.errors import Retryable, Terminal
from nodeagent.host.etcd.client import EtcdAccess, EtcdClient, EtcdFault, endpoints_of, open_client
from nodeagent.host.etcd.detect import detect
from nodeagent.host.etcd.options import Options
from nodeagent.host.fs.atomic import new_file
from nodeagent.host.fs.os_errors import translated
from nodeagent.reasons import Reason

# Seconds for the whole file: a keyspace of 8 GB over a network of 20 Mbit/s.
TIMEOUT: Final = 3600.0
# Seconds without a piece.
STALL: Final = 30.0

# Twice the largest quota that etcd suggests.
MAX_BYTES: Final = 16 << 30

# Bytes of one object: far above a piece of 32 KiB in base64, and no danger for the memory of the service.
MAX_LINE: Final = 8 << 20
# Bytes that must stay free on the file system of the snapshot.
RESERVE: Final = 64 << 20

TRAILER: Final = hashlib.sha256().digest_size
MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class EtcdSnapshot:
    """``sha256`` is that of the keyspace without the trailer, as etcd computed it.

    ``storage_version`` is "" before 3.6.
    """

    path: str
    size: int
    sha256: str
    storage_version: str


async def snapshot_of(access: EtcdAccess, path: Path) -> EtcdSnapshot:
    """Save a snapshot of the first member that answers: that of this host, or another one. Raises ``EtcdFault``."""
    member = None if access.endpoints else await asyncio.to_thread(detect)
    options = member.options if member is not None else Options()
    where = endpoints_of(options, access)
    client = await asyncio.to_thread(open_client, options, access, where)
    faults = []
    for url in (*where.ours, *where.others):
        try:
            # A short request first, because a member that does not answer would hold the snapshot up to its own
            # timeout.
            await client.state(url)
            return await save_snapshot(client, url, path)
        except EtcdFault as fault:
            faults.append(fault.message)
    raise EtcdFault("no member gives a snapshot: " + "; ".join(faults))


async def save_snapshot(client: EtcdClient, url: str, path: Path, *, max_bytes: int = MAX_BYTES) -> EtcdSnapshot:
    """Save the snapshot of the member at ``url``. An existing file is replaced at the end.

    Raises ``EtcdFault``, ``Retryable`` (``EtcdSnapshotInvalid``), and the errors of the file system.
    """
    ended = threading.Event()
    began = threading.Event()

    def read(response: HTTPResponse) -> EtcdSnapshot:
        began.set()
        try:
            return _save(response, url, path, max_bytes)
        finally:
            ended.set()

    try:
        return await client.snapshot(url, read, timeout=TIMEOUT, stall=STALL)
    finally:
        # After a cancellation the thread removes its temporary file.
        if began.is_set() and not ended.is_set():
            await asyncio.to_thread(ended.wait, 2.0)


def _save(response: HTTPResponse, url: str, path: Path, max_bytes: int) -> EtcdSnapshot:
    digest, last, size, version = hashlib.sha256(), b"", 0, ""
    with translated("write", str(path)):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with translated("write", str(path)), new_file(folder, path.name, mode=MODE) as write:
            while line := _line(response, url):
                piece, version, remaining = _piece(response.status, line, url)
                # The first piece has the size of all, so a disk that is too small is found before it is full.
                if not size:
                    _check_space(folder, path, remaining)
                size += len(piece)
                if size > max_bytes:
                    raise _invalid(f"{url}: the snapshot has more than {max_bytes} bytes")
                write(piece)
                last += piece
                # Which bytes are the trailer is known at the end only, so the last ones are always held back.
                digest.update(last[:-TRAILER])
                last = last[-TRAILER:]
            if size <= TRAILER or digest.digest() != last:
                raise _invalid(f"{url}: the snapshot is cut off or damaged: its SHA-256 is not that of its last bytes")
        return EtcdSnapshot(str(path), size, digest.hexdigest(), version)
    finally:
        os.close(folder)


def _line(response: HTTPResponse, url: str) -> bytes:
    """Read one line. Errors of the connection are not those of the file."""
    try:
        return response.readline(MAX_LINE + 1)
    except (OSError, ValueError, HTTPException) as error:
        raise EtcdFault(f"{url}: the snapshot is cut off: {error}") from error


def _piece(status: int, line: bytes, url: str) -> tuple[bytes, str, int]:
    """Return the bytes of one line, the version of the member, and the number of bytes that follow."""
    if len(line) > MAX_LINE:
        raise _invalid(f"{url}: a piece of the snapshot has more than {MAX_LINE} bytes")
    try:
        document = plain_json.loads(line)
        if not isinstance(document, dict):
            raise TypeError
        if status != 200 or "error" in document or "result" not in document:
            error = document.get("error") or document
            cause = error.get("message") if isinstance(error, dict) else error
            raise EtcdFault(f"{url}: no snapshot: {cause or f'status {status}'}", reason=Reason.ETCD_REJECTED)
        result = document["result"]
        blob = base64.b64decode(result.get("blob") or "", validate=True)
        return blob, str(result.get("version") or ""), int(result.get("remaining_bytes") or 0)
    except (ValueError, TypeError, AttributeError, binascii.Error) as error:
        raise _invalid(f"{url}: the answer is not etcd's") from error


def _check_space(folder: int, path: Path, remaining: int) -> None:
    filesystem = os.statvfs(folder)
    free = filesystem.f_bavail * filesystem.f_frsize
    if free < remaining + RESERVE:
        raise Terminal(f"the snapshot needs {remaining} bytes, and {free} are free at {path}", reason=Reason.NO_SPACE)


def _invalid(text: str) -> Retryable:
    return Retryable(text, reason=Reason.ETCD_SNAPSHOT_INVALID)
