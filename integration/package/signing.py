# SPDX-License-Identifier: Apache-2.0
"""Signs the system extension by the commands of docs/usage/sign-extension.md, in a root with systemd-repart."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from integration.package import provisioning
from integration.package.conftest import EPOCH, SOURCE
from integration.package.test_install_pages import commands

PAGE: Final = SOURCE / "docs/usage/sign-extension.md"
DROP_IN: Final = "/etc/systemd/system/systemd-sysext.service.d/50-signed.conf"


class Signer:
    """`directory` has `cert.pem`, `key.pem`, and in `signed` what the commands make of dist/nodeagent.raw."""

    def __init__(self, root: Path, raw: Path) -> None:
        self.directory = root / "work"
        (self.directory / "dist").mkdir(parents=True)
        shutil.copy(raw, self.directory / "dist/nodeagent.raw")
        self.box = provisioning.box(root, Path("/dev"))
        (self.request,) = commands("On the build machine,", PAGE)
        make, *self._sign, copy = commands("For each version", PAGE)
        assert (make, copy) == ("make package", "scp cert.pem signed/nodeagent.raw HOST:")
        self.run(self.request)

    def run(self, command: str) -> None:
        """Run a command in the directory. Raises CommandFailed."""
        self.box.run("env", f"SOURCE_DATE_EPOCH={EPOCH}", "sh", "-euc", f"cd /work && {command}")

    def sign(self) -> Path:
        for command in self._sign:
            self.run(command)
        return self.directory / "signed/nodeagent.raw"


def drop_in() -> str:
    """Return the drop-in of the page, which requires a signature."""
    lines: Sequence[str] = commands("Require the signature", PAGE)
    text = PAGE.read_text()
    assert f"# {DROP_IN}" in text
    return "\n".join(line for line in lines if not line.startswith("#")) + "\n"


def policy() -> str:
    """Return the option with the image policy of the drop-in."""
    (found,) = {line.rpartition(" ")[2] for line in drop_in().splitlines() if "--image-policy=" in line}
    return found
