# SPDX-License-Identifier: Apache-2.0
"""Parts of trees that change faster than Debian: nodeagent's package, and what updates the OS of a host."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from integration.hosts import process
from integration.hosts.container.image import digest
from integration.hosts.container.package import install_into
from integration.hosts.ostree import small_registry
from integration.standins import bootc, rpmostreed
from integration.standins.rpmostreed import install
from integration.trees.ostree_container import OSTREE_CONTAINER
from integration.trees.tree import Part

SERVED = "/run/images"  # in a host with `bootc_host`: the blobs of its registry, as a directory of this machine
REGISTRY_STATE = "/var/lib/small-registry"
REGISTRY_UNIT = "small-registry.service"
_PORT = 5000
_EXT = "usr/libexec/libostree/ext/ostree-container"
_REGISTRY = """\
[Unit]
RequiresMountsFor={state}
[Service]
ExecStart=python3 /usr/lib/small-registry.py {served} {port} {state}
[Install]
WantedBy=multi-user.target
"""


def package(tarball: Path) -> Part:
    """nodeagent's package, with its units enabled."""
    return Part("nodeagent", hashlib.sha256(tarball.read_bytes()).digest(), lambda root: install_into(root, tarball))


def stand_in(settings: Mapping[str, str] | None = None) -> Part:
    """The stand-in of rpm-ostreed; `settings` are RPMOSTREED_STANDIN_* variables, such as LIKE, without that prefix."""
    environment = "".join(f"RPMOSTREED_STANDIN_{name}={value}\n" for name, value in sorted((settings or {}).items()))
    digest = hashlib.sha256(environment.encode())
    sources = Path(rpmostreed.__file__).parent
    for path in sorted([*sources.glob("install.py"), *sources.glob("standin/*.py"), *sources.glob("files/*")]):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())

    def put(root: Path) -> None:
        install.install_into(root)
        (root / install.ENVIRONMENT).write_text(environment)

    return Part("rpm-ostreed", digest.digest(), put)


def bootc_host(served: str = SERVED) -> Part:
    """The real `ostree container`, bootc, and a registry of `served` as quay.io on the host's loopback.

    Raises Unavailable.
    """
    files = {
        "etc/containers/registries.conf.d/tests.conf": small_registry.registries_conf("quay.io", _PORT),
        f"usr/lib/systemd/system/{REGISTRY_UNIT}": _REGISTRY.format(served=served, port=_PORT, state=REGISTRY_STATE),
    }
    sources = {
        _EXT: OSTREE_CONTAINER.find(),
        "usr/bin/bootc": bootc.program(),
        "usr/lib/small-registry.py": Path(small_registry.__file__),
    }

    def put(root: Path) -> None:
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        for name, source in sources.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, root / name)
            (root / name).chmod(0o755)
        process.run(["chroot", str(root), "systemctl", "enable", REGISTRY_UNIT], timeout=30)

    made_of = (*(path.read_bytes() for path in sources.values()), *(text.encode() for text in files.values()))
    return Part("bootc", digest(*made_of).encode(), put)
