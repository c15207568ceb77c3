"""What a build may reuse: directories named by the hash of everything that went into them."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

UNUSED_DAYS = 14.0


def root() -> Path:
    """The user's cache of package parts. Safe to delete at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nodeagent" / "package"


def digest(parts: Iterable[bytes | str]) -> str:
    """A short name for `parts`, in which moving a byte from one part to the next makes a difference."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:32]


def directory(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The cached directory of `kind` for `key`; `make` fills it if it is not there yet.

    It appears by rename, whole or not at all, so builds at the same time do not disturb each other.
    """
    target = root() / f"{kind}-{key}"
    if target.is_dir():
        os.utime(target)
        return target
    root().mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=root()))
    _prune(fresh.stat().st_mtime)
    try:
        make(fresh)
        fresh.chmod(0o755)
        try:
            fresh.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another build was faster, with the same content
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _prune(now: float) -> None:
    """Remove what no build has used for UNUSED_DAYS, and what builds that were broken off left behind."""
    for path in root().iterdir():
        if path.is_dir() and path.stat().st_mtime < now - UNUSED_DAYS * 86400:
            shutil.rmtree(path, ignore_errors=True)
