# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/usage/install-sysupdate.md: systemd-sysupdate installs a signed release and the next one.

They run in the root of a host that is not booted, so the commands after the update are those of test_sysext.py.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.hosts.errors import CommandFailed
from integration.package import provisioning
from integration.package.conftest import SOURCE, Package
from integration.package.test_first_boot import Quiet
from integration.package.test_install_pages import commands
from integration.trees.toolbox import Toolbox, scratch

pytestmark = pytest.mark.long

TIMEOUT = 120.0  # seconds
PAGE = SOURCE / "docs/usage/install-sysupdate.md"
TRANSFER = SOURCE / "packaging/sysupdate/10-nodeagent.transfer"
KEY = "gpg --batch --passphrase '' --quick-gen-key releases default default never"
SIGN = "gpg --batch --yes --local-user releases --output SHA256SUMS.gpg --detach-sign SHA256SUMS"
RELEASE = "srv/release"
STORE = "var/lib/nodeagent-extension"
LINK = "var/lib/extensions/nodeagent.raw"


class UpdatedHost:
    """The root of a host, and a server with a directory of it."""

    def __init__(self, root: Path, raw: Path) -> None:
        self.root = root
        self._raw = raw
        self._box: Toolbox = provisioning.box(root, Path("/dev"))

    def run(self, command: str) -> None:
        """Run a command of the page in /root. Raises CommandFailed."""
        self._box.run("env", "HOME=/root", "sh", "-euc", f"cd /root && {command}", timeout=TIMEOUT)

    def release(self, *versions: str) -> None:
        """Put a signed release with these versions on the server."""
        directory = self.root / RELEASE
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for version in versions:
            shutil.copy(self._raw, directory / name(version))
            with (directory / name(version)).open("ab") as image:
                image.write(version.encode())
        # What `make release SIGN=releases` does, which test_release.py makes.
        export = "gpg --batch --armor --export releases >publisher.asc"
        self.run(f"cd /{RELEASE} && sha256sum nodeagent-* >SHA256SUMS && {export} && {SIGN}")
        make, *keyring = commands("For each release", PAGE)
        assert make == "make release SIGN=KEY"
        for command in keyring:
            self.run(command.replace("dist/release", f"/{RELEASE}"))

    def damage(self, file: str, content: bytes) -> None:
        (self.root / RELEASE / file).write_bytes(content)

    @property
    def installed(self) -> tuple[str, set[str]]:
        """The image that the link leads to, and all images."""
        return (self.root / LINK).readlink().name, {path.name for path in (self.root / STORE).iterdir()}


def name(version: str) -> str:
    return f"nodeagent-{version}-x86-64.raw"


@pytest.fixture
def host(package: Package) -> Iterator[UpdatedHost]:
    image = provisioning.tools()
    with scratch(image) as root:
        (root / "var/lib/extensions").mkdir(exist_ok=True)
        yield UpdatedHost(root, package.raw)
    image.close()


@pytest.fixture
def address(host: UpdatedHost) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(host.root / RELEASE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_address[1]}/"
        serving.shutdown()
        thread.join()


def test_a_signed_release_is_installed_and_then_the_next(host: UpdatedHost, address: str, package: Package) -> None:
    host.run(KEY)
    host.release("0.1.0")
    text = TRANSFER.read_text()
    assert "Path=https://SERVER/\n" in text
    # The server of the test has no certificate.
    (host.root / "root" / TRANSFER.name).write_text(text.replace("https://SERVER/", address))
    for command in commands("On the host, as root, once", PAGE):
        host.run(command)
    update = commands("Then, and for each upgrade", PAGE)[0]
    host.run(update)
    assert host.installed == (name("0.1.0"), {name("0.1.0")})
    assert (host.root / STORE / name("0.1.0")).read_bytes().startswith(package.raw.read_bytes())

    host.release("0.1.0", "0.2.0", "0.10.0")
    host.run(update)
    assert host.installed == (name("0.10.0"), {name("0.1.0"), name("0.10.0")})
    (back,) = commands("before it are kept", PAGE)
    host.run(back)
    assert host.installed[0] == name("0.1.0")

    host.release("0.11.0")
    image = bytearray((host.root / RELEASE / name("0.11.0")).read_bytes())
    image[-1] ^= 1
    host.damage(name("0.11.0"), bytes(image))
    with pytest.raises(CommandFailed, match="did not check out, file has been tampered with") as caught:
        host.run(update)
    assert "Signature verification succeeded" in str(caught.value)
    assert (host.root / STORE / host.installed[0]).is_file(), "the image in use stays"
    host.release("0.11.0")
    host.damage("SHA256SUMS.gpg", b"no signature")
    with pytest.raises(CommandFailed, match="Signature verification failed"):
        host.run(update)
    assert name("0.11.0") not in host.installed[1]

    host.release("0.11.0")
    host.run(update)
    assert host.installed == (name("0.11.0"), {name("0.1.0"), name("0.10.0"), name("0.11.0")})
    host.release("0.12.0")
    host.run(update)
    assert host.installed == (name("0.12.0"), {name("0.10.0"), name("0.11.0"), name("0.12.0")})
