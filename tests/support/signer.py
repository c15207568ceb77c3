# SPDX-License-Identifier: Apache-2.0
"""An authority that signs certificate requests, by the openssl of this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Signer:
    def __init__(self, directory: Path) -> None:
        self._file = directory / "authority.pem"
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-config", "/dev/null"]
        key, certificate = directory / "authority.key", directory / "authority.crt"
        _openssl("req", "-x509", *new, "-subj", "/CN=authority", "-keyout", str(key), "-out", str(certificate))
        self._file.write_bytes(key.read_bytes() + certificate.read_bytes())
        self._serial = 0

    def sign(self, request: bytes, *, days: int = 30) -> bytes:
        """Return a certificate that differs each time."""
        self._serial += 1
        about = ["-set_serial", str(self._serial), "-days", str(days)]
        return _openssl("x509", "-req", "-CA", str(self._file), *about, stdin=request)


def request_for(subject: str) -> bytes:
    """Return a request with a key that is thrown away."""
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "/dev/null"]
    return _openssl("req", "-new", *new, "-config", "/dev/null", "-subj", subject)


def _openssl(*arguments: str, stdin: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, check=True, timeout=60).stdout
