# SPDX-License-Identifier: Apache-2.0
"""Sign the files of a release with a GPG key of the caller, which GnuPG finds as it is configured."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from bundle import tools
from bundle.errors import BuildError

TIMEOUT = 120.0  # seconds for one signature; a card or a passphrase may be waited for
PUBLIC = "publisher.asc"


def check_key(key: str) -> str:
    """Return the fingerprint of the secret key that `key` names, after a signature on trial. Raises BuildError."""
    tools.require("gpg")
    listed = tools.run(["gpg", "--batch", "--with-colons", "--list-secret-keys", "--", key], timeout=TIMEOUT).decode()
    found = [str(each) for each in re.findall(r"^sec:.*?\nfpr:+([0-9A-F]+):", listed, re.MULTILINE | re.DOTALL)]
    if len(found) != 1:
        raise BuildError(f"{key} names {len(found)} secret keys: give a fingerprint of {', '.join(found)}")
    # An expired key, or one that cannot sign, is listed too.
    tools.run(["gpg", "--batch", "--local-user", found[0], "--detach-sign"], timeout=TIMEOUT, stdin=b"on trial")
    return found[0]


def write_public(fingerprint: str, target: Path) -> None:
    """Write the public key, without the signatures of others on it. Raises BuildError."""
    options = ["--batch", "--armor", "--export-options", "export-minimal"]
    target.write_bytes(tools.run(["gpg", *options, "--export", fingerprint], timeout=TIMEOUT))


def sign_rpms(results: Path, fingerprint: str) -> None:
    """Sign each RPM of a directory, and have rpm verify it with nothing but the public key. Raises BuildError."""
    # Debian's rpm looks for gpg2, which Debian does not have.
    macros = ["--define", f"_gpg_name {fingerprint}", "--define", f"__gpg {tools.require('gpg')}"]
    with tempfile.TemporaryDirectory(prefix="nodeagent-keys-") as database:
        keys = ["rpmkeys", "--dbpath", database]
        public = Path(database, PUBLIC)
        write_public(fingerprint, public)
        tools.run([*keys, "--import", str(public)], timeout=TIMEOUT)
        for path in sorted(results.glob("*.rpm")):
            tools.run(["rpmsign", *macros, "--addsign", str(path)], timeout=TIMEOUT)
            answer = tools.run([*keys, "--checksig", str(path)], timeout=TIMEOUT).decode().strip()
            # Without a signature the answer is "digests OK", and the exit status 0 as well.
            if not answer.endswith("signatures OK"):
                raise BuildError(f"rpmsign left {path.name} without a signature: {answer}")


def sign_sums(sums: Path, fingerprint: str) -> None:
    """Sign the sums, and with them all files. The name of the signature is the one that systemd-sysupdate reads."""
    command = ["gpg", "--batch", "--yes", "--local-user", fingerprint, "--detach-sign"]
    tools.run([*command, "--output", f"{sums}.gpg", str(sums)], timeout=TIMEOUT)
