# SPDX-License-Identifier: Apache-2.0
"""The image of a node: the base image of the test hosts, and what Debian has for containers.

The kubelet and the images of containers are not in it: a host binds them from the cache, so a version of them is on
the disk of the machine once.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from integration.hosts import process
from integration.hosts.container.image import Image, base_image, derived_image, digest, tree_digest
from integration.hosts.requirements import Say
from integration.hosts.sources import code
from integration.trees.base import chrooted, inside, install

GUEST: Final = Path(__file__).parent / "guest"
PACKAGES: Final = ("containerd", "runc", "containernetworking-plugins", "iproute2")
UNITS: Final = ("containerd.service", "container-images.service", "kubelet.service", "node-prepare.service")
STAND_INS: Final = ("crio.service", "kubelet.service", "flaky.service", "reloadable.service")
"""Units of the base image that a node does without, or has a real one in place of."""


def node_image(say: Say) -> Image:
    """Raises Unavailable where no host can be booted."""

    def with_packages(root: Path) -> None:
        say("installing containerd for the image of a node")
        install(root, PACKAGES)
        shutil.rmtree(root / "var/lib/apt/lists")

    packages = derived_image(base_image(say), "containerd", digest(repr(PACKAGES).encode()).encode(), with_packages)
    source = digest(code(__file__), tree_digest(GUEST)).encode()
    return derived_image(packages, "node", source, _change)


def _change(root: Path) -> None:
    with chrooted(root):
        inside(root, "systemctl", "disable", *STAND_INS)
        for unit in STAND_INS:
            (root / "usr/lib/systemd/system" / unit).unlink()
        shutil.copytree(GUEST, root, dirs_exist_ok=True)
        inside(root, "systemctl", "enable", *UNITS)
    for directory in ("etc/kubernetes/manifests", "opt/kubernetes", "opt/containers", "opt/images"):
        (root / directory).mkdir(parents=True, exist_ok=True)


if __name__ == "__main__":
    for layer in node_image(print).layers:
        size = process.run(["du", "-sm", str(layer.path)], timeout=60).stdout.split()[0].decode()
        print(f"{layer.path.name}: {size} MB")
