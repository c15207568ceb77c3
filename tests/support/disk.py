# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests on real directories: what a tree is, byte for byte, and mounts in a private namespace."""

from __future__ import annotations

import ctypes
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root (owners, mounts, attributes)")

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _CLONE_FS = 0x00020000, 0x00000200
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything below: type, mode, owner and content or target, by path."""
    out: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        what: object = None
        if stat.S_ISLNK(info.st_mode):
            what = os.readlink(path)
        elif stat.S_ISREG(info.st_mode):
            what = path.read_bytes()
        out[str(path.relative_to(root))] = (oct(info.st_mode), info.st_uid, info.st_gid, what)
    return out


def temps(root: Path) -> list[str]:
    return [str(path) for path in root.rglob(".nodeagent-*")]


def mount(source: str, target: Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    done = _LIBC.mount(source.encode(), str(target).encode(), kind.encode(), flags, options.encode())
    if done != 0:
        raise OSError(ctypes.get_errno(), f"mount {target}")


def exchange(one: Path, other: Path) -> None:
    """renameat2() with RENAME_EXCHANGE: the two change places, at no moment is either missing."""
    if _LIBC.renameat2(-100, str(one).encode(), -100, str(other).encode(), 2) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def in_mount_namespace(work: Callable[[], None]) -> None:
    """Runs ``work`` in a thread with mounts of its own; they are gone with the thread. Skips where that is denied."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            if _LIBC.unshare(_CLONE_FS | _CLONE_NEWNS) != 0:
                pytest.skip("no private mount namespace here")
            mount("none", Path("/"), flags=MS_REC | MS_PRIVATE)
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
