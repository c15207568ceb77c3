# SPDX-License-Identifier: Apache-2.0
"""The files of a machine-config-daemon are read, within bounds and without a change."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.errors import InvalidInput, Terminal
from nodeagent.features.mcd_import import files
from nodeagent.features.mcd_import.files import current_config, originals
from nodeagent.update.ports.store import Snapshot
from tests.support.disk import tree

CONFIG = json.dumps(
    {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {"name": "rendered-1"}}
).encode()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "etc/machine-config-daemon"
    place.mkdir(parents=True)
    return place


def test_nothing_there(tmp_path: Path) -> None:
    assert current_config(str(tmp_path)) is None
    assert originals(str(tmp_path)) == []


def test_the_current_config(home: Path, tmp_path: Path) -> None:
    (home / "currentconfig").write_bytes(CONFIG)
    source = current_config(str(tmp_path))
    assert source is not None
    assert (source.name, source.text) == ("rendered-1", CONFIG)
    assert source.digest == hashlib.sha256(CONFIG).hexdigest()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"{}",
        b'{"metadata": []}',
        b'{"metadata": {"name": 5}}',
        b'{"metadata": {"name": ""}}',
        b'{"kind": "ConfigMap", "metadata": {"name": "x"}}',
        b"\xff\xfe\x00",
        CONFIG[:-10],
        b'{"metadata":' * 100_000,
    ],
)
def test_what_is_no_config(home: Path, tmp_path: Path, content: bytes) -> None:
    (home / "currentconfig").write_bytes(content)
    with pytest.raises(InvalidInput, match="currentconfig") as caught:
        current_config(str(tmp_path))
    assert caught.value.reason == "AdoptionFailed"
    assert "move it away" in caught.value.hint


def test_a_link_is_not_followed(home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(CONFIG)
    (home / "currentconfig").symlink_to("../../elsewhere")
    with pytest.raises(InvalidInput, match="symbolic link"):
        current_config(str(tmp_path))


def test_its_size_is_bounded(home: Path, tmp_path: Path) -> None:
    (home / "currentconfig").write_bytes(b"")
    os.truncate(home / "currentconfig", files.CONFIG_LIMIT + 1)
    with pytest.raises(Terminal) as caught:
        current_config(str(tmp_path))
    assert caught.value.reason == "FileTooLarge"


def test_originals(home: Path, tmp_path: Path) -> None:
    def put(name: str, content: str = "", mode: int = 0o644) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(mode)

    kept = "etc/machine-config-daemon"
    put(f"{kept}/orig/etc/chrony.conf.mcdorig", "shipped\n", 0o640)
    put("usr/etc/chrony.conf", "shipped, newer\n")
    put(f"{kept}/orig/etc/written.conf.mcdorig", "a backup of what the daemon wrote itself")
    put(f"{kept}/orig/etc/both.conf.mcdorig", "old")
    put("usr/etc/both.conf")
    put(f"{kept}/noorig/etc/both.conf.mcdnoorig")
    put(f"{kept}/noorig/usr/local/bin/tool.sh.mcdnoorig")
    put(f"{kept}/orig/README")
    put(f"{kept}/currentimage", "registry/x")
    before = tree(tmp_path)

    found = {one.key: one for one in originals(str(tmp_path))}
    assert list(found) == [
        "path:/etc/both.conf",
        "path:/etc/chrony.conf",
        "path:/etc/written.conf",
        "path:/usr/local/bin/tool.sh",
    ]
    shipped = found.pop("path:/etc/chrony.conf").node
    assert isinstance(shipped, RegularFile)
    assert (shipped.content, shipped.mode) == (b"shipped\n", 0o640)
    assert set(found.values()) == {Snapshot(key) for key in found}
    assert tree(tmp_path) == before
