# SPDX-License-Identifier: Apache-2.0
"""Trees of virtual machines of aarch64: Debian's packages for arm64, configured under QEMU's user emulation.

libostree does not depend on the programs of a tree, so commits, images and disks are made by the ostree of this
machine's architecture, as is Python's bytecode: the emulation takes ten times as long.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from integration.hosts.container.image import Image, base_image, cache_directory, derived_image
from integration.hosts.errors import CommandFailed, Unavailable
from integration.hosts.requirements import Say
from integration.hosts.sources import code
from integration.hosts.vm import initramfs
from integration.trees import base, layout
from integration.trees.base import Flavour
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.toolbox import Toolbox, toolbox

ARCHITECTURE = "arm64"
KERNEL = {"linux-image-cloud-amd64": "linux-image-cloud-arm64"}
PACKAGES = base.PACKAGES + tuple(KERNEL.get(name, name) for name in base.KERNEL_PACKAGES)
COMPILE = ("python3", "-m", "compileall", "-qf", "--invalidation-mode=unchecked-hash", "-p", "/")


class Aarch64Repo(OstreeRepo):
    """Commits of aarch64. Programs of it must be able to run here (`integration.hosts.emulation`)."""

    def __init__(self, say: Say) -> None:
        """Raises Unavailable where no trees can be made."""
        self.flavour = Flavour.MACHINE
        with contextlib.ExitStack() as on_error:
            self._native = base.base(Flavour.CONTAINER, say)
            on_error.callback(self._native.close)
            self.image = self._machine(say)
            on_error.callback(self.image.close)
            self._converted = derived_image(self.image, "ostree-aarch64", code(layout.__file__), layout.convert)
            on_error.pop_all()
        self.repo = cache_directory() / "trees-aarch64" / "repo"
        self._say = lambda text: say(f"aarch64: {text}")

    @contextlib.contextmanager
    def toolbox(self, *directories: Path) -> Iterator[Toolbox]:
        with toolbox(self._native, *directories) as tools:
            yield tools

    def close(self) -> None:
        super().close()
        self._native.close()

    def _machine(self, say: Say) -> Image:
        """The root with a kernel and ostree, cached."""

        def change(root: Path) -> None:
            say("installing ostree and a kernel for the aarch64 tree, some minutes, once")
            base.install(root, PACKAGES)
            with self.toolbox(root) as tools:
                tools.run(*COMPILE, "-s", str(root), str(root / "usr/lib"))
            version = base.kernel(root)
            assert version is not None, "a kernel was just installed"
            directory = root / "usr/lib/modules" / version
            (directory / "initramfs.img").write_bytes(initramfs.build(root, version))
            (root / f"boot/vmlinuz-{version}").rename(directory / "vmlinuz")

        with contextlib.ExitStack() as on_error:
            try:
                system = base_image(say, foreign=ARCHITECTURE)
                on_error.callback(system.close)
                made = derived_image(system, "tree-aarch64", code(__file__, base.__file__, initramfs.__file__), change)
            except CommandFailed as error:
                # The mirror of this machine may not have that architecture.
                raise Unavailable(f"no tree can be made of Debian for {ARCHITECTURE}: {error}") from None
            on_error.pop_all()
            return made
