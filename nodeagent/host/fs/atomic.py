# SPDX-License-Identifier: Apache-2.0
"""Put an entry into an open directory so that readers see the old state or the new one.

The entry is built under a hidden temporary name in the same directory, completed through a file descriptor (owner,
mode, label, data, fsync), and then renamed. In a directory of another user, that name may be swapped at any moment.
Therefore changes are made through the descriptor only, and the renamed entry is compared with it afterwards.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from nodeagent.errors import Retryable
from nodeagent.host.fs.selinux import Labels
from nodeagent.reasons import Reason

_PREFIX = ".nodeagent-"
_SUFFIX = ".tmp"
# Hex digits.
_TOKEN = 16
# For files without a label in the config.
_LABELS = Labels()
_ACLS = ("system.posix_acl_access", "system.posix_acl_default")

# Gets a file descriptor and its ``st_mode``. Called before any data is written.
Labeller = Callable[[int, int], None]


def temp_name() -> str:
    """Return a hidden name with a suffix that no drop-in directory reads. It is unpredictable for other users."""
    return f"{_PREFIX}{secrets.token_hex(_TOKEN // 2)}{_SUFFIX}"


def is_temp(name: str) -> bool:
    """Return whether ``temp_name`` could have made this name."""
    token = name[len(_PREFIX) : -len(_SUFFIX)]
    return name == f"{_PREFIX}{token}{_SUFFIX}" and len(token) == _TOKEN and set(token) <= set("0123456789abcdef")


def remove_temp(name: str, dir_fd: int) -> None:
    """Remove a file, a link or an empty directory."""
    try:
        os.unlink(name, dir_fd=dir_fd)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=dir_fd)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Make changes of the entries durable. Raises ``OSError``."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _temporary(dir_fd: int) -> Iterator[str]:
    name = temp_name()
    try:
        yield name
    except BaseException:
        with suppress(OSError):
            remove_temp(name, dir_fd)
        raise


@contextmanager
def _file(dir_fd: int, name: str) -> Iterator[int]:
    """Yield the descriptor of a file that gets its name at the end of the block, none after an error."""
    with _temporary(dir_fd) as temp:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temp, flags, 0o600, dir_fd=dir_fd)
        try:
            _drop_acls(fd)
            yield fd
            # The data must be on the disk before the name is: a power cut in between would leave an empty file.
            os.fsync(fd)
            _publish(dir_fd, temp, name, fd)
        finally:
            os.close(fd)


def put_file(dir_fd: int, name: str, content: bytes, *, mode: int, uid: int, gid: int, label: Labeller) -> None:
    with _file(dir_fd, name) as fd:
        label(fd, stat.S_IFREG | mode)
        _write(fd, content)
        os.fchown(fd, uid, gid)
        # This follows fchown, which clears the set-id bits.
        os.fchmod(fd, mode)


@contextmanager
def new_file(dir_fd: int, name: str, *, mode: int) -> Iterator[Callable[[bytes], None]]:
    """Yield a function that writes the next part of a file. The file gets its name at the end, none after an error."""
    with _file(dir_fd, name) as fd:
        _LABELS.write_new(fd, os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name), mode)  # noqa: PTH115, PTH118
        yield lambda part: _write(fd, part)
        os.fchmod(fd, mode)


def put_link(dir_fd: int, name: str, target: str, *, uid: int, gid: int, label: Labeller) -> None:
    with _temporary(dir_fd) as temp:
        os.symlink(target, temp, dir_fd=dir_fd)
        fd = os.open(temp, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
        try:
            info = os.fstat(fd)
            # Another user who can write the directory may have replaced the new link.
            if not stat.S_ISLNK(info.st_mode) or info.st_uid != os.geteuid():
                raise _swapped()
            label(fd, info.st_mode)
            if (info.st_uid, info.st_gid) != (uid, gid):
                # This changes the link itself: the descriptor is not followed further.
                os.chown(f"/proc/self/fd/{fd}", uid, gid)
            # A link has no fsync; that of its directory covers it.
            _publish(dir_fd, temp, name, fd)
        finally:
            os.close(fd)


def put_dir(dir_fd: int, name: str, *, mode: int, uid: int, gid: int, label: Labeller) -> None:
    """Put an empty directory. It is renamed too, so that a crash leaves none with the wrong owner or mode."""
    with _temporary(dir_fd) as temp:
        os.mkdir(temp, 0o700, dir_fd=dir_fd)
        fd = os.open(temp, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
        try:
            info = os.fstat(fd)
            # Another user could have moved a directory of root to this name.
            if info.st_uid != os.geteuid() or os.listdir(fd):  # noqa: PTH208 - a Path has no handle
                raise _swapped()
            _drop_acls(fd)
            label(fd, info.st_mode)
            os.fchown(fd, uid, gid)
            os.fchmod(fd, mode)
            os.fsync(fd)
            _publish(dir_fd, temp, name, fd)
        finally:
            os.close(fd)


def _publish(dir_fd: int, temp: str, name: str, fd: int) -> None:
    os.rename(temp, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    # The rename is by name. The comparison proves that it moved the file that was written.
    there = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if not os.path.samestat(there, os.fstat(fd)):
        raise _swapped()
    # Without this sync, a power cut could bring the previous file back.
    os.fsync(dir_fd)


def _write(fd: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        # A write may be shorter than requested, for example at the end of the space.
        rest = rest[os.write(fd, rest) :]


def _drop_acls(fd: int) -> None:
    """Remove ACLs: a default ACL of the directory would widen the requested mode."""
    for name in _ACLS:
        try:
            os.removexattr(fd, name)
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.ENOTSUP, errno.EINVAL):
                raise


def _swapped() -> Retryable:
    return Retryable("another process replaced the temporary file while it was written", reason=Reason.PATH_CHANGED)
