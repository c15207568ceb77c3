# SPDX-License-Identifier: Apache-2.0
"""Put the stand-in into a root filesystem. Runs outside of the guest, needs nothing but the standard library.

The guest needs python3, python3-gi and gir1.2-ostree-1.0 (PACKAGES), and is given: the program, `rpm-ostreed.service`,
activation by the bus, the bus policy and the polkit actions. Settings of a guest are lines of
/etc/rpmostreed-standin.env, such as RPMOSTREED_STANDIN_LIKE=2022 or RPMOSTREED_STANDIN_REGISTRY=/registry.
"""

from __future__ import annotations

import shutil
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = ("python3", "python3-gi", "gir1.2-ostree-1.0", "ostree")
PROGRAM = "usr/lib/rpmostreed-standin"
ENVIRONMENT = "etc/rpmostreed-standin.env"
_FILES = {
    "rpm-ostreed.service": "usr/lib/systemd/system",
    "org.projectatomic.rpmostree1.service": "usr/share/dbus-1/system-services",
    "org.projectatomic.rpmostree1.conf": "usr/share/dbus-1/system.d",
    "org.projectatomic.rpmostree1.policy": "usr/share/polkit-1/actions",
}


def install_into(rootfs: Path) -> None:
    """Install or replace it below `rootfs`, a root filesystem or the tree of a commit. Only usr is written."""
    package = rootfs / PROGRAM / "integration/standins/rpmostreed"
    shutil.rmtree(rootfs / PROGRAM, ignore_errors=True)
    for directory in (package.parents[1], package.parent, package):
        directory.mkdir(parents=True, exist_ok=True)
        _copy(HERE / "standin" / "__init__.py", directory / "__init__.py")
    for source in sorted((HERE / "standin").glob("*.py")):
        _copy(source, package / "standin" / source.name)
    _copy(HERE / "files" / "run", rootfs / PROGRAM / "run", mode=0o755)
    for name, directory_name in _FILES.items():
        _copy(HERE / "files" / name, rootfs / directory_name / name)


def _copy(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)
