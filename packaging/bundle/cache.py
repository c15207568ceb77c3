# SPDX-License-Identifier: Apache-2.0
"""The parts that builds reuse: directories named by the hash of their inputs."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

UNUSED_DAYS = 14.0


def root() -> Path:
    """Return the user's cache of package parts. It may be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nodeagent" / "package"


def digest(parts: Iterable[bytes | str]) -> str:
    """Return a short name for `parts`. It changes if a byte moves from one part to the next."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:32]


def directory(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """Return the cached directory of `kind` for `key`. `make` fills a new one.

    It appears by rename, whole or not at all, so that concurrent builds do not disturb each other.
    """
    target = root() / f"{kind}-{key}"
    if target.is_dir():
        os.utime(target)
        return target
    root().mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=root()))
    _prune(fresh.stat().st_mtime)
    try:
        # What unpacks an archive gives the directory the time of the archive, and another build would prune it: this
        # one keeps its own time, and the finished one gets the present time.
        made = fresh / "made"
        made.mkdir()
        make(made)
        made.chmod(0o755)
        os.utime(made)
        try:
            made.rename(target)
        except OSError:
            # Another build may have been faster, with the same content.
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def bound(kind: str, count: int) -> None:
    """Remove all but the `count` directories of `kind` that were used last."""
    found = [path for path in root().glob(f"{kind}-*") if path.is_dir() and not path.is_symlink()]
    for path in sorted(found, key=lambda path: path.stat().st_mtime)[: -count or None]:
        shutil.rmtree(path, ignore_errors=True)


def _prune(now: float) -> None:
    """Remove directories that no build has used for UNUSED_DAYS, and those of interrupted builds."""
    for path in root().iterdir():
        if path.is_dir() and path.stat().st_mtime < now - UNUSED_DAYS * 86400:
            shutil.rmtree(path, ignore_errors=True)
