# SPDX-License-Identifier: Apache-2.0
"""Keys that are part of a kubeconfig: on the disk only while a connection is made."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from nodeagent.kube.client import KubeClient, _connect
from nodeagent.kube.credentials import KEYS, ClusterAccess
from nodeagent.kube.errors import NoAnswer
from tests.kube.test_client import Clock, kubeconfig
from tests.support.needs import needs
from tests.support.signer import Signer

pytestmark = needs("openssl")


def with_keys(directory: Path, name: str = "a") -> Path:
    (directory / name).mkdir(exist_ok=True)
    Signer(directory / name)
    files = {"client-key-data": "authority.key", "client-certificate-data": "authority.crt"}
    user = {key: base64.b64encode((directory / name / file).read_bytes()).decode() for key, file in files.items()}
    return kubeconfig(directory, "https://127.0.0.1:1", **user)


@pytest.mark.finding("attack: private keys on the disk", "No private key of a kubeconfig stays on the disk.")
async def test_no_key_stays(tmp_path: Path) -> None:
    private = tmp_path / "run"
    left = private / KEYS / "tmpold"
    left.parent.mkdir(parents=True)
    left.write_text("of a process that was killed")
    path, clock = with_keys(tmp_path), Clock()
    async with KubeClient(ClusterAccess(str(path), private=str(private)), clock, timeout=30.0) as client:
        for name in ("a", "b", "b"):
            with pytest.raises(NoAnswer):
                await client.get("/x")
            assert os.listdir(private) == []
            with_keys(tmp_path, name)
            clock.ahead += 60
            os.utime(path, (clock.ahead, clock.ahead))
    assert os.listdir(private) == []


def test_the_keys_do_not_count_as_rotated_files(tmp_path: Path) -> None:
    path = with_keys(tmp_path)
    access = ClusterAccess(str(path), private=str(tmp_path / "run"))
    with access.loaded() as identity:
        assert Path(identity.configuration.key_file).stat().st_mode & 0o077 == 0
        assert list(identity.stamps) == [str(path)]
    assert not identity.changed()
    with access.loaded() as again:
        assert Path(again.configuration.key_file).read_bytes() == Path(tmp_path / "a/authority.key").read_bytes()


def test_a_kubeconfig_that_cannot_be_read_leaves_no_key(tmp_path: Path) -> None:
    path = with_keys(tmp_path)
    document = json.loads(path.read_text())
    document["users"][0]["user"]["client-certificate-data"] = base64.b64encode(b"no certificate").decode()
    path.write_text(json.dumps(document))
    with pytest.raises(OSError, match="PEM"):
        _connect(ClusterAccess(str(path), private=str(tmp_path / "run")))
    assert os.listdir(tmp_path / "run") == []
