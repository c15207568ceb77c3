# SPDX-License-Identifier: Apache-2.0
"""Trees that boot with SELinux enforcing: Debian's reference policy, nodeagent's module, and labels in the commits.

The reference policy knows neither ostree's layout nor the harness. `RING` has the rules for those, so that what is left
in the audit log is nodeagent's.
"""

from __future__ import annotations

from pathlib import Path

from integration.hosts.container.image import Image, cache_directory, derived_image
from integration.hosts.requirements import Say
from integration.hosts.sources import code
from integration.trees import layout
from integration.trees.base import Flavour, chrooted, inside, install
from integration.trees.bootc_machine import BootcMachineRepo
from integration.trees.ostree_repo import OstreeRepo

MODULE = Path(__file__).parents[2] / "packaging" / "selinux" / "nodeagent.cil"
RING = Path(__file__).with_name("enforcing.cil")
STORE = "etc/selinux/default"
CONTEXTS = f"{STORE}/contexts/files/file_contexts"
# libostree runs `semodule --refresh` in bubblewrap for each new deployment. secilc is for the test that compiles.
PACKAGES = ("selinux-policy-default", "policycoreutils", "selinux-utils", "bubblewrap", "secilc")
# The newest format that the kernel of the tree reads; libsepol would write a newer one.
POLICY_VERSION = 33
SEMANAGE = f"\nstore-root = /etc/selinux\npolicy-version = {POLICY_VERSION}\n"
TIMEOUT = 600.0


def policy_image(machine: Image, say: Say) -> Image:
    """Return the root of a virtual machine with the reference policy."""

    def change(root: Path) -> None:
        say("installing the reference policy for the trees with SELinux, about a minute, once")
        install(root, PACKAGES)
        (root / "etc/selinux/config").write_text("SELINUX=enforcing\nSELINUXTYPE=default\n")
        # As Fedora CoreOS has it: the store is a part of the deployment, and /var is not.
        with (root / "etc/selinux/semanage.conf").open("a") as file:
            file.write(SEMANAGE)
        (root / "var/lib/selinux/default/active").rename(root / STORE / "active")
        # Disabled in Debian. With it, each denial is in the journal; lines of the kernel are rate-limited.
        inside(root, "systemctl", "enable", "systemd-journald-audit.socket")

    return derived_image(machine, "tree-selinux", code(__file__), change)


class EnforcingRepo(OstreeRepo):
    """Commits with the labels of the policy in them. `bootc`: of machines that bootc updates. Raises Unavailable."""

    def __init__(self, say: Say, *, bootc: bool = False) -> None:
        super().__init__(Flavour.MACHINE, say)
        super().close()
        self.bootc = bootc
        if bootc:
            machine = BootcMachineRepo(say)
            machine.close()
            self.image = machine.image

        def load(root: Path) -> None:
            say("building the policy with nodeagent's module")
            for module in (MODULE, RING):
                (root / "tmp" / module.name).write_bytes(module.read_bytes())
            with chrooted(root):
                inside(root, "semodule", "-n", "-D", "-s", "default", "-i", *(f"/tmp/{m.name}" for m in (MODULE, RING)))
            for module in (MODULE, RING):
                (root / "tmp" / module.name).unlink()
            for each in (root / STORE / "policy").glob("policy.*"):
                if each.suffix != f".{POLICY_VERSION}":
                    each.unlink()

        modules = MODULE.read_bytes() + RING.read_bytes()
        self.image = derived_image(policy_image(self.image, say), "selinux-module", modules + code(__file__), load)
        self._converted = derived_image(self.image, "ostree-selinux", code(layout.__file__), layout.convert)
        self.repo = cache_directory() / "trees-selinux" / "repo"

    def _write(self, ref: str, directory: Path, *options: str) -> None:
        # Epoch 1 labels usr/etc as /etc.
        super()._write(ref, directory, "--selinux-policy=/", "--selinux-labeling-epoch=1", *options)
