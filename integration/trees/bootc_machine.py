# SPDX-License-Identifier: Apache-2.0
"""Trees of a virtual machine that bootc updates: a kernel, and what pulls and stages images on such a host.

They are those of a machine with the packages of `Flavour.BOOTC` over them. The initramfs is made again, because it has
the program of libostree that mounts a deployment.
"""

from __future__ import annotations

from pathlib import Path

from integration.hosts.container.image import cache_directory, derived_image
from integration.hosts.errors import CommandFailed
from integration.hosts.requirements import Say
from integration.hosts.sources import code
from integration.hosts.vm import initramfs
from integration.trees import forky, layout
from integration.trees.base import BOOTC_PACKAGES, PACKAGES, Flavour, chrooted, inside, install, kernel
from integration.trees.ostree_repo import OstreeRepo

COMPILE = ("python3", "-m", "compileall", "-qf", "--invalidation-mode=unchecked-hash", "/usr/lib")


class BootcMachineRepo(OstreeRepo):
    """Commits of such trees, made with the libostree that the machines have. Raises Unavailable."""

    def __init__(self, say: Say) -> None:
        super().__init__(Flavour.MACHINE, say)
        super().close()

        def change(root: Path) -> None:
            say("installing what a host of bootc has into the tree of a machine, a minute or two, once")
            try:
                with forky.offered(root):
                    install(root, (*PACKAGES, *BOOTC_PACKAGES))
            except CommandFailed as error:
                # forky changes every day.
                say(f"the libostree of {forky.SUITE} does not install: {error}")
                install(root, BOOTC_PACKAGES)
            with chrooted(root):
                inside(root, *COMPILE)
            version = kernel(root)
            assert version is not None, "it is the tree of a machine"
            (root / "usr/lib/modules" / version / "initramfs.img").write_bytes(initramfs.build(root, version))

        sources = code(__file__, forky.__file__, initramfs.__file__)
        self.image = derived_image(self.image, "tree-bootc-machine", sources, change)
        self._converted = derived_image(self.image, "ostree-bootc-machine", code(layout.__file__), layout.convert)
        self.repo = cache_directory() / "trees-bootc-machine" / "repo"
