# SPDX-License-Identifier: Apache-2.0
"""`nodeagent bootstrap` from the first request to the renewal, killed at every step.

The API server is that of tests/kube, which approves and signs at once unless a test wants something else.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodeagent.errors import AgentError
from nodeagent.features.certificates import requests
from nodeagent.features.certificates.cli import _steps
from nodeagent.features.certificates.cli._steps import bootstrap
from nodeagent.features.certificates.directory import CertificateDirectory
from nodeagent.kube import client
from nodeagent.settings.schema import Settings
from tests.kube.server import Answer, Request, serving
from tests.support.needs import needs
from tests.support.signer import Signer

pytestmark = needs("openssl")


class Killed(BaseException):
    """As a kill: nothing handles it."""


@dataclass
class Api:
    """Answers of an API server. ``decision`` gives the status of a new request, ``user`` who the client is."""

    signer: Signer
    user: str = "nodeagent:n1"
    denied: bool = False
    signs: bool = True
    faults: list[Answer] = field(default_factory=list)
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)

    def answer(self, request: Request) -> Answer:
        if self.faults:
            return self.faults.pop(0)
        if request.target.endswith("/selfsubjectreviews"):
            return Answer(201, {"status": {"userInfo": {"username": self.user, "groups": ["nodeagent"]}}})
        if request.method == "POST":
            request.body["metadata"] |= {"uid": "u", "resourceVersion": "1"}
            return Answer(201, self.requests.setdefault(request.body["metadata"]["name"], request.body))
        found = self.requests.get(request.target.rsplit("/", 1)[1])
        if found is None:
            return Answer(404, {"kind": "Status"})
        if self.denied:
            return Answer(
                body={**found, "status": {"conditions": [{"type": "Denied", "status": "True", "message": "not ours"}]}}
            )
        if not self.signs:
            return Answer(body=found)
        signed = self.signer.sign(base64.b64decode(found["spec"]["request"]))
        return Answer(body={**found, "status": {"certificate": base64.b64encode(signed).decode()}})


@dataclass
class Host:
    directory: Path
    api: Api
    settings: Settings

    @property
    def pem(self) -> Path:
        return self.directory / "state/client/client.pem"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def source(self) -> Path:
        return self.directory / "bootstrap-kubeconfig"

    async def run(self, *, wait: float = 60, renew: bool = False) -> None:
        async with serving(None) as server:
            server.answer = self.api.answer
            for path in (self.source, self.kubeconfig):
                if path.exists():
                    path.write_text(path.read_text().replace("http://127.0.0.1:1", f"http://127.0.0.1:{server.port}"))
            try:
                await asyncio.to_thread(bootstrap, self.settings, self.source, wait=wait, renew=renew)
            finally:
                for path in (self.source, self.kubeconfig):
                    if path.exists():
                        text = path.read_text()
                        path.write_text(text.replace(f"http://127.0.0.1:{server.port}", "http://127.0.0.1:1"))

    async def reason(self, **options: Any) -> str:
        with pytest.raises(AgentError) as caught:
            await self.run(**options)
        return str(caught.value.reason)

    def left(self) -> list[str]:
        return sorted(os.listdir(self.pem.parent))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(requests, "POLL", 0.01)
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(_steps, "VERIFY", 0.0)
    (tmp_path / "state").mkdir()
    made = Host(tmp_path, Api(Signer(tmp_path)), Settings())
    cluster = msgspec.structs.replace(made.settings.cluster, kubeconfig=str(made.kubeconfig))
    made.settings = msgspec.structs.replace(
        made.settings, node_name="n1", state_dir=str(tmp_path / "state"), cluster=cluster
    )
    document = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    made.source.write_text(json.dumps(document))
    return made


async def test_joined_and_renewed(host: Host) -> None:
    await host.run()
    first = host.pem.read_bytes()
    assert host.left() == ["client.pem"]
    await host.run()
    assert (host.pem.read_bytes(), len(host.api.requests)) == (first, 1)
    host.source.unlink()
    await host.run(renew=True)
    assert host.pem.read_bytes() != first
    assert (host.left(), len(host.api.requests)) == (["client.pem"], 2)


STEPS: list[tuple[Any, str]] = [
    (CertificateDirectory, "request"),
    (requests, "_read_or_create"),
    (CertificateDirectory, "store"),
    (_steps, "verify"),
    (CertificateDirectory, "adopt"),
    (CertificateDirectory, "forget_request"),
    (_steps, "install"),
]


def killed(*_: Any, **__: Any) -> Any:
    raise Killed


def valid(host: Host) -> bool:
    folder = CertificateDirectory(host.pem.parent, "n1")
    with folder.locked():
        return folder.validity() is not None


@pytest.mark.long
@pytest.mark.parametrize("renew", [False, True])
@pytest.mark.parametrize(("place", "name"), STEPS, ids=[name for _, name in STEPS])
async def test_a_kill(host: Host, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, renew: bool) -> None:
    """Before each step; after the last one nothing is left to do."""
    if renew:
        await host.run()
    with monkeypatch.context() as patch:
        patch.setattr(place, name, killed)
        with pytest.raises(Killed):
            await host.run(renew=renew)
    # In a renewal, there is a certificate with its key at each moment.
    assert not renew or await asyncio.to_thread(valid, host)
    await host.run()
    assert await asyncio.to_thread(valid, host)
    assert host.left() == ["client.pem"]
    assert host.kubeconfig.exists()
    # One request for each certificate, however often it was killed.
    assert len(host.api.requests) <= 1 + renew


async def test_it_waits_for_the_approval(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.api.signs = False
    assert await host.reason(wait=0) == "CertificatePending"
    (name,) = host.api.requests
    assert not host.kubeconfig.exists()
    running = asyncio.create_task(host.run())
    async with asyncio.timeout(60):
        while f"nodeagent fleet approve {name}" not in capsys.readouterr().out:
            await asyncio.sleep(0.01)
    host.api.signs = True
    await running
    assert len(host.api.requests) == 1


async def test_a_denied_renewal_leaves_what_is_in_use(host: Host) -> None:
    await host.run()
    before = host.pem.read_bytes()
    host.api.denied = True
    for _ in range(2):
        assert await host.reason(renew=True) == "CertificateDenied"
    assert host.pem.read_bytes() == before
    assert len(host.api.requests) == 2


async def test_a_certificate_that_is_not_accepted_is_not_used(host: Host) -> None:
    await host.run()
    before = host.pem.read_bytes()
    host.api.user = "nodeagent:n2"
    assert await host.reason(renew=True) == "CertificateFailed"
    assert host.pem.read_bytes() == before
    host.api.user = "nodeagent:n1"
    await host.run(renew=True)
    assert len(host.api.requests) == 2


async def test_faults_of_the_api_server_are_waited_out(host: Host) -> None:
    host.api.faults = [Answer(500), Answer(503), Answer(429), Answer(500), Answer(500)]
    await host.run()


async def test_bootstrap_credentials_that_are_not_accepted(host: Host) -> None:
    host.api.faults = [Answer(401)] * 4
    with pytest.raises(AgentError) as caught:
        await host.run()
    assert caught.value.reason == "KubeUnauthorized"
    assert str(host.source) in caught.value.hint


async def test_a_renewal_falls_back_to_the_bootstrap_credentials(host: Host) -> None:
    await host.run()
    # The certificate in use, and the same again with what was read again.
    host.api.faults = [Answer(401), Answer(401)]
    await host.run(renew=True)
    assert len(host.api.requests) == 2


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ("no kubeconfig", "KubeconfigInvalid"),
        ("foreign", "CannotWrite"),
        ("unset", "Usage"),
        ("no name", "NodeUnknown"),
    ],
)
async def test_refused_before_anything_is_made(host: Host, about: str, reason: str) -> None:
    change: dict[str, Any] = {}
    match about:
        case "no kubeconfig":
            host.source.unlink()
        case "foreign":
            shutil.copy(host.source, host.kubeconfig)
        case "unset":
            change["cluster"] = Settings().cluster
        case "no name":
            change["node_name"] = "localhost.localdomain"
    host.settings = msgspec.structs.replace(host.settings, **change)
    assert await host.reason() == reason
    assert host.api.requests == {}
    assert not host.pem.parent.exists() or host.left() == []


@pytest.mark.finding(
    "attack: the unit without rights", "The step that reads answers of the API server writes only its own directory."
)
async def test_the_kubeconfig_is_written_by_a_step_of_its_own(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(_steps, "install", lambda *_: None)
        await host.run()
    assert host.pem.exists()
    assert not host.kubeconfig.exists()
    # No server answers now.
    await asyncio.to_thread(_steps.install, host.settings, host.source)
    written = host.kubeconfig.read_text()
    assert str(host.pem) in written
    host.kubeconfig.write_text(written + "\n# of an admin\n")
    await asyncio.to_thread(_steps.install, host.settings, host.source)
    assert host.kubeconfig.read_text().endswith("# of an admin\n")


async def test_the_install_step_waits_for_a_certificate(host: Host) -> None:
    await asyncio.to_thread(_steps.install, host.settings, host.source)
    assert not host.kubeconfig.exists()
