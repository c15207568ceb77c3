# SPDX-License-Identifier: Apache-2.0
"""A certificate authority of its own for each cluster, by openssl. P-256 throughout: a key in milliseconds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from integration.hosts import process, requirements
from integration.hosts.errors import Unavailable

TIMEOUT: Final = 30.0
DAYS: Final = "30"
NEW_KEY: Final = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Authority:
    """Writes `NAME.crt` and `NAME.key` into `directory`. A name that is there is replaced by rename, as rotation
    does."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        # It makes the certificates of the cluster.
        if without := requirements.missing("openssl"):
            raise Unavailable(without)
        self.directory = directory
        self.certificate = directory / f"{name}.crt"
        self._key = directory / f"{name}.key"
        directory.mkdir(parents=True, exist_ok=True)
        self._request(
            ["-x509", "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE"],
            self.certificate,
            self._key,
        )

    def server(self, name: str, *addresses: str) -> tuple[Path, Path]:
        return self._signed(
            name, f"/CN={name}", ["subjectAltName=" + ",".join(addresses), "extendedKeyUsage=serverAuth"]
        )

    def member(self, name: str, *addresses: str) -> tuple[Path, Path]:
        """For a server that is a client of its like, as etcd is of its peers and of itself."""
        alternatives = "subjectAltName=" + ",".join(addresses)
        return self._signed(name, f"/CN={name}", [alternatives, "extendedKeyUsage=serverAuth,clientAuth"])

    def client(self, name: str, user: str, groups: Sequence[str] = ()) -> tuple[Path, Path]:
        """`user` and `groups` are what the API server takes from the certificate: its CN and its O."""
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        return self._signed(name, subject, ["extendedKeyUsage=clientAuth"])

    def _signed(self, name: str, subject: str, extensions: Sequence[str]) -> tuple[Path, Path]:
        certificate, key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        more = [word for extension in ("basicConstraints=CA:FALSE", *extensions) for word in ("-addext", extension)]
        signer = ["-x509", "-CA", str(self.certificate), "-CAkey", str(self._key)]
        self._request([*signer, "-subj", subject, *more], certificate, key)
        return certificate, key

    def _request(self, options: Sequence[str], certificate: Path, key: Path) -> None:
        new = [path.with_name(path.name + ".new") for path in (certificate, key)]
        output = ["-days", DAYS, "-out", str(new[0]), "-keyout", str(new[1])]
        process.run(["openssl", "req", *NEW_KEY, *options, *output], timeout=TIMEOUT)
        new[1].chmod(0o600)
        for fresh, path in zip(reversed(new), (key, certificate), strict=True):
            fresh.replace(path)


def signing_key(path: Path) -> Path:
    """An RSA key, which is what service account tokens are signed with by default."""
    process.run(["openssl", "genrsa", "-out", str(path), "2048"], timeout=TIMEOUT, env=dict(os.environ))
    return path
