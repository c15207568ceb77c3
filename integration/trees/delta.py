# SPDX-License-Identifier: Apache-2.0
"""The differences of a tree to the plain one, as a directory that `ostree commit --base` lays over the plain commit.

Hashing a whole tree takes seconds and a variant differs in a few files. Both trees are views of the same read-only
layers, so an unchanged entry has the same inode number and change time in both.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

State = tuple[int, ...]


def extract(plain: Path, changed: Path, delta: Path) -> bool:
    """Fill `delta`, a new directory, with what is other in `changed`. False where it cannot: something is gone."""
    before, after = _states(plain), _states(changed)
    if before.keys() - after.keys():
        return False
    _make_directory(changed, delta)
    for name, state in after.items():
        if before.get(name) != state:
            _copy(changed, delta, Path(name))
    return True


def _states(root: Path) -> dict[str, State]:
    found: dict[str, State] = {}
    pending = [root]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                state: State = (about.st_mode, about.st_uid, about.st_gid)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
                else:
                    state += (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
                found[os.path.relpath(entry.path, root)] = state
    return found


def _copy(source: Path, delta: Path, name: Path) -> None:
    for parent in reversed(name.parents):
        _make_directory(source / parent, delta / parent)
    path, target = source / name, delta / name
    if stat.S_ISDIR(path.lstat().st_mode):
        _make_directory(path, target)
    else:
        shutil.copy2(path, target, follow_symlinks=False)
        _own(path, target)


def _make_directory(like: Path, target: Path) -> None:
    if not target.exists():
        target.mkdir()
        _own(like, target)
        shutil.copymode(like, target)


def _own(like: Path, target: Path) -> None:
    about = like.lstat()
    os.chown(target, about.st_uid, about.st_gid, follow_symlinks=False)
