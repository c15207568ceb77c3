"""The desired config as a file: what is read, and what is not even opened as a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.host import config_file

pytestmark = pytest.mark.usefixtures("no_leaked_fds")


async def test_read(tmp_path: Path) -> None:
    path = tmp_path / "machineconfig.yaml"
    assert await config_file.read(str(path)) is None
    path.write_bytes(b"kind: MachineConfig\n")
    path.chmod(0o600)
    assert await config_file.read(str(path)) == b"kind: MachineConfig\n"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to("/dev/null"), "UnsafeConfig"),
        (lambda path: os.mkfifo(path, 0o600), "UnsafeConfig"),
        (lambda path: path.mkdir(0o700), "UnsafeConfig"),
        (lambda path: path.touch(0o600) or path.chmod(0o666), "UnsafeConfig"),
        (lambda path: path.touch(0o600) or os.truncate(path, config_file.MAX_BYTES + 1), "TooLarge"),
    ],
    ids=["a link", "a FIFO", "a directory", "writable by others", "too large"],
)
async def test_what_is_no_config(tmp_path: Path, make: Callable[[Path], object], reason: str) -> None:
    path = tmp_path / "machineconfig.yaml"
    make(path)
    with pytest.raises(InvalidInput) as caught:
        await config_file.read(str(path))
    assert caught.value.reason == reason
