# SPDX-License-Identifier: Apache-2.0
"""The programs with which hosts are provisioned, as Debian's packages in the image of a test host."""

from __future__ import annotations

from pathlib import Path

from integration.hosts.container.image import Image, base_image, derived_image
from integration.hosts.errors import Unavailable
from integration.hosts.sources import code
from integration.package.conftest import cannot
from integration.trees.base import install
from integration.trees.toolbox import Toolbox

PACKAGES = (
    *("buildah", "netavark", "skopeo", "ignition", "systemd-container", "cryptsetup-bin"),
    *("systemd-repart", "squashfs-tools", "openssl", "dnf", "rpm"),
)
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}\n'


def tools() -> Image:
    """Return the root with the programs, made once."""

    def change(root: Path) -> None:
        install(root, PACKAGES)
        (root / "usr/bin/ignition-apply").symlink_to("/usr/lib/dracut/modules.d/30ignition/ignition")
        policy = root / "etc/containers/policy.json"
        policy.parent.mkdir(exist_ok=True)
        policy.write_text(POLICY)

    try:
        return derived_image(base_image(print), "provisioning", code(__file__), change)
    except Unavailable as error:
        cannot(f"the programs cannot be installed here: {error}")


def box(root: Path, *directories: Path) -> Toolbox:
    """Return a way to run programs in `root`, which see the directories at the same paths as here."""
    for directory in directories:
        (root / directory.relative_to("/")).mkdir(parents=True, exist_ok=True)
    return Toolbox(root, directories)
