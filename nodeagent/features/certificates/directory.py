# SPDX-License-Identifier: Apache-2.0
"""The key and the certificate of the agent on the disk, made and read with the openssl of the host.

``client.pem`` has the key and the certificate that are in use, ``request.pem`` the key and the request that waits for
an answer, ``new.pem`` the key and a certificate that is not verified yet. Each file is replaced as a whole, so that
key and certificate always match, and a kill at any moment leaves the certificate that is in use.

The host's program is used because Python's standard library makes no keys, and a library for them has 11 MB. It also
follows the crypto policy of the host (FIPS).
"""

from __future__ import annotations

import fcntl
import os
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nodeagent.errors import Retryable, Terminal
from nodeagent.features.certificates.decide.client_certificate import GROUP, Validity, subject_of, user_of
from nodeagent.features.certificates.reasons import CertificateReason
from nodeagent.host.fs.atomic import new_file
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.programs import starting
from nodeagent.reasons import Reason

# Seconds for one run of openssl, which takes milliseconds.
DEADLINE: Final = 60.0
# Bytes of a file of this module.
MAX_BYTES: Final = 128 * 1024
_REQUEST: Final = b"-----BEGIN CERTIFICATE REQUEST-----"
# X.520 allows 64 characters in a common name, and openssl insists on it. A Node may have 253, the host names of a cloud
# often have more than 54, and neither the API server nor its signer has the limit. No file of the host counts here.
_CONFIGURATION: Final = b"""openssl_conf = start
[start]
stbl_section = lengths
[lengths]
CN = min:1,max:300
[req]
distinguished_name = none
[none]
"""
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/usr/sbin:/bin:/sbin", "LC_ALL": "C"}


class CertificateDirectory:
    """Use the methods inside of ``locked``. They block, and raise the errors of ``host.fs``, ``ToolMissing``,
    ``ToolTimedOut``, ``ProgramNotStarted`` and ``CertificateFailed``."""

    def __init__(self, path: Path, node: str, *, openssl: str = "openssl", deadline: float = DEADLINE) -> None:
        self.path = path
        self._node = node
        self._openssl = openssl
        self._deadline = deadline
        self._fd = -1

    @property
    def current(self) -> Path:
        return self.path / "client.pem"

    @property
    def candidate(self) -> Path:
        return self.path / "new.pem"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory, which is created. Raises ``Refused`` (``Busy``) if another process has it."""
        with translated("open", str(self.path)):
            self.path.mkdir(mode=0o700, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Retryable("another nodeagent bootstrap is running", reason=Reason.BUSY) from None
            yield
        finally:
            os.close(self._fd)
            self._fd = -1

    def validity(self) -> Validity | None:
        """Return the life of the certificate in use; None if there is none, or it is that of another node."""
        content = self._read(self.current.name)
        return None if content is None or not _matches(self.current) else self._life(content)

    def request(self) -> bytes:
        """Return the request in PEM that waits for an answer. One without an answer is used again, with its key."""
        content = self._read("request.pem")
        if content is not None and self._is_own_request(content):
            return content[content.index(_REQUEST) :]
        key = self._run("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
        # The key comes through a pipe: no file with a key exists before it is complete.
        subject = f"/O={GROUP}/CN={user_of(self._node)}"
        with _pipe(_CONFIGURATION) as configuration:
            about = ("-key", "/dev/stdin", "-config", f"/dev/fd/{configuration}", "-subj", subject)
            request = self._run("req", "-new", *about, stdin=key, inherit=(configuration,))
        if _REQUEST not in request:
            raise Terminal("openssl printed no certificate request", reason=CertificateReason.FAILED)
        self._write("request.pem", key + request)
        return request[request.index(_REQUEST) :]

    def store(self, certificate: bytes) -> Validity:
        """Put the certificate beside the key of its request, as ``candidate``. Raises ``Terminal``
        (``CertificateFailed``) if it is that of another key or node."""
        content = self._read("request.pem") or b""
        self._write(self.candidate.name, content.partition(_REQUEST)[0] + certificate)
        life = self._life(certificate) if _matches(self.candidate) else None
        if life is None:
            raise Terminal(
                "the cluster issued a certificate for another key or another node",
                reason=CertificateReason.FAILED,
            )
        return life

    def adopt(self) -> None:
        """Use the candidate from now on."""
        with translated("rename", str(self.candidate)):
            os.rename(self.candidate.name, self.current.name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            os.fsync(self._fd)
        self.forget_request()

    def take(self, content: bytes) -> None:
        """Use a key and a certificate from elsewhere from now on, unless the present ones last longer.

        Raises ``Terminal`` (``CertificateFailed``) if they are not those of this node.
        """
        self._write(self.candidate.name, content)
        life = self._life(content) if _matches(self.candidate) else None
        if life is None:
            self.forget_request()
            raise Terminal("what was obtained is no key and certificate of this node", reason=CertificateReason.FAILED)
        in_use = self.validity()
        if in_use is None or in_use.end <= life.end:
            self.adopt()
        else:
            self.forget_request()

    def clear(self) -> None:
        """Remove the key and the certificate, too."""
        self.forget_request()
        with translated("remove", str(self.path)):
            self.current.unlink(missing_ok=True)

    def forget_request(self) -> None:
        """Remove what a request left."""
        with translated("remove", str(self.path)):
            for name in ("request.pem", self.candidate.name):
                (self.path / name).unlink(missing_ok=True)

    def _read(self, name: str) -> bytes | None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with translated("read", str(self.path / name)):
            try:
                fd = os.open(name, flags, dir_fd=self._fd)
            except FileNotFoundError:
                return None
            with os.fdopen(fd, "rb") as file:
                return file.read(MAX_BYTES)

    def _write(self, name: str, content: bytes) -> None:
        with translated("write", str(self.path / name)), new_file(self._fd, name, mode=0o600) as write:
            write(content)

    def _life(self, content: bytes) -> Validity | None:
        """Return the life of the first certificate, None if its subject is not this node."""
        fields = self._show("x509", "-dates", content)
        if fields.get("subject") != subject_of(self._node):
            return None
        try:
            return Validity(*(float(ssl.cert_time_to_seconds(fields[key])) for key in ("notBefore", "notAfter")))
        except (KeyError, ValueError):
            return None

    def _is_own_request(self, content: bytes) -> bool:
        if _REQUEST not in content:
            return False
        # The signature of the request proves that its key is complete.
        return self._show("req", "-verify", content).get("subject") == subject_of(self._node)

    def _show(self, what: str, option: str, content: bytes) -> Mapping[str, str]:
        """Return the fields that openssl prints for the first object in PEM, {} if openssl cannot read it."""
        try:
            printed = self._run(what, "-noout", "-subject", option, "-nameopt", "RFC2253", stdin=content)
        except Terminal as error:
            if error.reason != CertificateReason.FAILED:
                raise
            return {}
        lines = printed.decode(errors="replace").splitlines()
        return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}

    def _run(self, *arguments: str, stdin: bytes = b"", inherit: Sequence[int] = ()) -> bytes:
        try:
            with starting(self._openssl):
                done = subprocess.run(
                    [self._openssl, *arguments],
                    input=stdin,
                    capture_output=True,
                    timeout=self._deadline,
                    check=False,
                    env=_ENVIRONMENT,
                    pass_fds=inherit,
                )
        except FileNotFoundError:
            raise Terminal("this host has no openssl program", reason=Reason.TOOL_MISSING) from None
        except OSError as error:
            cause = error.strerror or type(error).__name__
            raise Terminal(f"openssl cannot be started: {cause}", reason=Reason.TOOL_MISSING) from None
        except subprocess.TimeoutExpired:
            raise Retryable(f"openssl did not end within {self._deadline:g} s", reason=Reason.TOOL_TIMED_OUT) from None
        if done.returncode != 0:
            # openssl quotes no key in its messages.
            words = " ".join(done.stderr.decode(errors="replace").split())[-500:]
            raise Terminal(f"openssl {arguments[0]} failed: {words}", reason=CertificateReason.FAILED)
        return done.stdout


@contextmanager
def _pipe(content: bytes) -> Iterator[int]:
    """Yield the end of a pipe from which ``content`` is read, of less than the 4096 bytes that each pipe takes."""
    with starting("openssl"):
        end, writer = os.pipe2(os.O_CLOEXEC)
    try:
        with os.fdopen(writer, "wb") as file:
            file.write(content)
        yield end
    finally:
        os.close(end)


def _matches(path: Path) -> bool:
    """Return whether the file has a certificate and the key of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_cert_chain(path)
    except (ssl.SSLError, OSError):
        return False
    return True
