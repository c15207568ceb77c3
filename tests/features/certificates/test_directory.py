# SPDX-License-Identifier: Apache-2.0
"""Key, request and certificate on the disk, with the real openssl."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from nodeagent.errors import AgentError, ServiceUnavailable
from nodeagent.features.certificates.directory import CertificateDirectory
from tests.host.test_programs import LACKS
from tests.support.needs import needs
from tests.support.signer import Signer, request_for

pytestmark = needs("openssl")


@pytest.fixture
def folder(tmp_path: Path) -> CertificateDirectory:
    return CertificateDirectory(tmp_path / "client", "n1")


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path)


def reason_of(error: pytest.ExceptionInfo[AgentError]) -> str:
    return str(error.value.reason)


def test_from_the_key_to_the_certificate(folder: CertificateDirectory, signer: Signer) -> None:
    with folder.locked():
        assert folder.validity() is None
        request = folder.request()
        assert folder.request() == request
        life = folder.store(signer.sign(request, days=3))
        assert life.end - life.begin == 3 * 86400
        assert life.begin < life.renewal < life.end
        assert folder.validity() is None
        folder.adopt()
        assert folder.validity() == life
    assert os.listdir(folder.path) == ["client.pem"]
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.current.stat().st_mode) == 0o600


def test_the_longest_name_of_a_node(tmp_path: Path, signer: Signer) -> None:
    """Without our configuration openssl refuses a common name of more than 64 characters."""
    folder = CertificateDirectory(tmp_path / "client", ".".join(["n" * 62] * 4))
    with folder.locked():
        assert folder.request() == folder.request()
        life = folder.store(signer.sign(folder.request()))
        folder.adopt()
        assert folder.validity() == life


def test_each_request_has_a_key_of_its_own(folder: CertificateDirectory, signer: Signer) -> None:
    with folder.locked():
        first = folder.request()
        folder.forget_request()
        second = folder.request()
        assert first != second
        with pytest.raises(AgentError) as caught:
            folder.store(signer.sign(first))
    assert reason_of(caught) == "CertificateFailed"


def made(path: Path, node: str, signer: Signer, *, days: int = 30) -> bytes:
    """Return a key and a certificate as another directory has them."""
    folder = CertificateDirectory(path, node)
    with folder.locked():
        folder.store(signer.sign(folder.request(), days=days))
        folder.adopt()
        return folder.current.read_bytes()


def test_the_certificate_that_lasts_longest_is_installed(
    folder: CertificateDirectory, signer: Signer, tmp_path: Path
) -> None:
    first, longer, shorter = (made(tmp_path / str(days), "n1", signer, days=days) for days in (3, 4, 2))
    with folder.locked():
        for content, installed in [(first, first), (longer, longer), (shorter, longer), (first, longer)]:
            folder.take(content)
            assert folder.current.read_bytes() == installed
    assert os.listdir(folder.path) == ["client.pem"]


@pytest.mark.parametrize("about", ["another node", "another key", "no certificate", "garbage"])
def test_what_is_no_certificate_of_this_node_is_not_installed(
    folder: CertificateDirectory, signer: Signer, tmp_path: Path, about: str
) -> None:
    own, other = made(tmp_path / "own", "n1", signer), made(tmp_path / "other", "n2", signer)
    content = {
        "another node": other,
        "another key": other[: other.index(b"-----BEGIN CERT")] + own[own.index(b"-----BEGIN CERT") :],
        "no certificate": own[: own.index(b"-----BEGIN CERT")],
        "garbage": b"root:$6$a-secret:19000:0:99999:7:::\n",
    }[about]
    with folder.locked():
        folder.take(own)
        with pytest.raises(AgentError) as caught:
            folder.take(content)
        assert folder.current.read_bytes() == own
    assert reason_of(caught) == "CertificateFailed"
    assert "secret" not in caught.value.message
    assert os.listdir(folder.path) == ["client.pem"]


def test_the_last_words_of_an_openssl_that_fails(tmp_path: Path) -> None:
    """FIPS mode may forbid a curve. Its last words are in the message."""
    program = tmp_path / "openssl"
    program.write_text("#!/bin/sh\necho 'genpkey: disabled' >&2\nexit 1\n")
    program.chmod(0o755)
    folder = CertificateDirectory(tmp_path / "client", "n1", openssl=str(program))
    with folder.locked(), pytest.raises(AgentError, match="openssl genpkey failed: genpkey: disabled") as caught:
        folder.request()
    assert reason_of(caught) == "CertificateFailed"
    assert os.listdir(folder.path) == []


def test_a_certificate_of_another_node(folder: CertificateDirectory, signer: Signer) -> None:
    with folder.locked():
        folder.store(signer.sign(folder.request()))
        folder.adopt()
    renamed = CertificateDirectory(folder.path, "n2")
    with renamed.locked():
        assert renamed.validity() is None
        assert b"nodeagent:" not in renamed.request()


@pytest.mark.parametrize("content", [b"", b"garbage", b"-----BEGIN CERTIFICATE REQUEST-----\ngarbage"])
def test_files_that_cannot_be_read(folder: CertificateDirectory, content: bytes) -> None:
    folder.path.mkdir(mode=0o700)
    for name in ("client.pem", "request.pem"):
        (folder.path / name).write_bytes(content)
    with folder.locked():
        assert folder.validity() is None
        assert folder.request().startswith(b"-----BEGIN CERTIFICATE REQUEST-----")


def test_a_request_of_another_host_is_made_again(folder: CertificateDirectory) -> None:
    folder.path.mkdir(mode=0o700)
    (folder.path / "request.pem").write_bytes(foreign := request_for("/O=nodeagent/CN=nodeagent:n2"))
    with folder.locked():
        assert folder.request() != foreign


def test_no_link_is_followed(folder: CertificateDirectory, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AgentError), folder.locked():
        pass
    folder.path.unlink()
    folder.path.mkdir()
    folder.current.symlink_to(tmp_path / "elsewhere")
    with folder.locked(), pytest.raises(AgentError):
        folder.validity()


def test_one_at_a_time(folder: CertificateDirectory) -> None:
    with folder.locked(), pytest.raises(AgentError) as caught, CertificateDirectory(folder.path, "n1").locked():
        pass
    assert reason_of(caught) == "Busy"
    with folder.locked():
        pass


def test_without_openssl_a_request_that_waits_is_not_made_again(folder: CertificateDirectory) -> None:
    with folder.locked():
        before = folder.request()
    folder._openssl = "/nowhere/openssl"
    with folder.locked(), pytest.raises(AgentError) as caught:
        folder.request()
    assert reason_of(caught) == "ToolMissing"
    folder._openssl = "openssl"
    with folder.locked():
        assert folder.request() == before


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("", "ToolMissing"),
        ("sleep 60", "ToolTimedOut"),
        ("echo broken >&2; exit 3", "CertificateFailed"),
        ("exit 0", "CertificateFailed"),
    ],
)
def test_an_openssl_that_fails(tmp_path: Path, script: str, reason: str) -> None:
    program = tmp_path / "openssl"
    if script:
        program.write_text(f"#!/bin/sh\nexec {script}\n" if script.startswith("sleep") else f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    folder = CertificateDirectory(
        tmp_path / "client", "n1", openssl=str(program), deadline=0.2 if "sleep" in script else 60
    )
    with folder.locked(), pytest.raises(AgentError) as caught:
        folder.request()
    assert reason_of(caught) == reason
    assert os.listdir(folder.path) == []


@pytest.mark.finding(
    "attack: programs that check a config", "A program that cannot be started is an outage that the update waits for."
)
@pytest.mark.parametrize("lack", LACKS)
def test_a_host_that_starts_no_program_is_an_outage(lack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> NoReturn:
        raise LACKS[lack]

    folder = CertificateDirectory(tmp_path / "client", "n1", openssl="true")
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with folder.locked(), pytest.raises(ServiceUnavailable) as caught:
        folder.request()
    assert caught.value.reason == "ProgramNotStarted"
