"""Key, request and certificate on the disk, with the real openssl."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nodeagent.errors import AgentError
from nodeagent.host.client_certificate import CertificateDirectory
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
