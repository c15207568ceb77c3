# SPDX-License-Identifier: Apache-2.0
"""The steps of `nodeagent bootstrap` in the directories that systemd gives to their units, killed between them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.cli.main import main
from nodeagent.errors import AgentError
from nodeagent.features.certificates.cli import _steps
from nodeagent.features.certificates.cli import _units as units
from nodeagent.features.certificates.directory import CertificateDirectory
from tests.features.certificates.test_bootstrap import Host, Killed, host, killed
from tests.kube.server import serving
from tests.support.needs import needs

__all__ = ["host"]

pytestmark = needs("openssl")


@dataclass
class Units:
    """Each step gets its own directories, and only what its unit passes to it."""

    host: Host
    monkeypatch: pytest.MonkeyPatch

    @property
    def task(self) -> Path:
        return self.host.directory / "run/task.json"

    @property
    def obtained(self) -> Path:
        return self.host.directory / "own/client.pem"

    def set(self, **directories: str) -> None:
        for variable in ("RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY", "STATE_DIRECTORY"):
            self.monkeypatch.delenv(variable, raising=False)
        for variable, name in directories.items():
            (self.host.directory / name).mkdir(exist_ok=True)
            self.monkeypatch.setenv(f"{variable}_DIRECTORY", str(self.host.directory / name))

    async def prepare(self) -> int:
        self.set(RUNTIME="run")
        return await asyncio.to_thread(units.prepare_task, self.host.settings, self.host.source)

    async def request(self) -> int:
        self.set(CREDENTIALS="credentials", STATE="own")
        credentials = self.host.directory / "credentials"
        async with serving(None) as server:
            server.answer = self.host.api.answer
            text = self.task.read_text().replace("http://127.0.0.1:1", f"http://127.0.0.1:{server.port}")
            (credentials / "task.json").write_text(text)
            return await asyncio.to_thread(units.request_task, 60.0)

    async def install(self) -> int:
        self.set(CREDENTIALS="credentials")
        certificate = self.host.directory / "credentials/certificate"
        certificate.write_bytes(self.obtained.read_bytes() if self.obtained.exists() else b"none")
        return await asyncio.to_thread(units.install_certificate, self.host.settings, self.host.source)

    async def run(self) -> None:
        assert [await self.prepare(), await self.request(), await self.install()] == [0, 0, 0]


@pytest.fixture
def steps(host: Host, monkeypatch: pytest.MonkeyPatch) -> Units:
    return Units(host, monkeypatch)


async def test_the_request_sees_neither_settings_nor_kubeconfigs(steps: Units, host: Host) -> None:
    authority, away = host.directory / "authority.crt", host.directory / "away"
    document = json.loads(host.source.read_text())
    document["clusters"][0]["cluster"]["certificate-authority"] = authority.name
    (host.directory / "token").write_text("t\n")
    document["users"][0]["user"] = {"tokenFile": "token"}
    host.source.write_text(json.dumps(document))
    await steps.prepare()
    assert stat.S_IMODE(steps.task.stat().st_mode) == 0o600
    away.mkdir()
    hidden = [host.source, host.pem.parent, authority, host.directory / "token"]
    for path in hidden:
        shutil.move(path, away)
    await steps.request()
    for path in hidden:
        shutil.move(away / path.name, path)
    await steps.install()
    assert host.pem.read_bytes() == steps.obtained.read_bytes()
    # The daemon reads an authority that is rotated again.
    assert str(authority) in host.kubeconfig.read_text()


async def test_renewed_with_the_certificate_in_use(steps: Units, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    await steps.run()
    first = host.pem.read_bytes()
    # Without work, the copy of the key is removed.
    await steps.run()
    assert (host.pem.read_bytes(), len(host.api.requests)) == (first, 1)
    assert os.listdir(steps.obtained.parent) == []
    host.source.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(_steps, "_now", lambda: renewal_of(host))
        await steps.run()
    assert host.pem.read_bytes() != first
    assert len(host.api.requests) == 2


def renewal_of(host: Host) -> float:
    folder = CertificateDirectory(host.directory / "other", "n1")
    shutil.copytree(host.pem.parent, folder.path, dirs_exist_ok=True)
    with folder.locked():
        life = folder.validity()
    assert life is not None
    return life.renewal


async def test_a_kill_before_the_installation(steps: Units, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    await steps.prepare()
    await steps.request()
    with monkeypatch.context() as patch:
        patch.setattr(CertificateDirectory, "take", killed)
        with pytest.raises(Killed):
            await steps.install()
    await steps.run()
    assert host.pem.exists()
    assert host.kubeconfig.exists()
    assert len(host.api.requests) == 1


async def test_the_request_ends_as_the_step_before(steps: Units, host: Host) -> None:
    host.source.unlink()
    with pytest.raises(AgentError) as caught:
        await steps.prepare()
    assert caught.value.reason == "KubeconfigInvalid"
    assert await steps.request() == caught.value.exit_code == 2
    assert host.api.requests == {}


@pytest.mark.parametrize("step", ["prepare", "request", "install"])
def test_a_step_outside_of_its_unit(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bootstrap", "--step", step]) == 2
    assert "systemctl start nodeagent-bootstrap" in capsys.readouterr().err
