# SPDX-License-Identifier: Apache-2.0
"""Installs nodeagent's package into test hosts, doing what a package manager would do around the files.

The package is the tar that `make package INTERPRETER=testing` writes: paths relative to `/`, everything under `usr`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from integration.hosts import process
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import Image, derived_image
from integration.hosts.errors import HostRingError

OWNED = "usr/lib/nodeagent"  # the one directory that belongs to the package alone
PRESETS = "usr/lib/systemd/system-preset/50-nodeagent.preset"
TIMEOUT = 120.0
# systemd opens files through /proc since version 262. The mount ends with the command.
IN_ROOT = ("unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"')


def installed_image(image: Image, tarball: Path) -> Image:
    """`image` with the package installed and its units enabled, cached by the content of the package."""
    digest = hashlib.sha256(tarball.read_bytes()).digest()

    return derived_image(image, "package", digest, lambda root: install_into(root, tarball))


def install_into(root: Path, tarball: Path) -> None:
    """Install the package into the root of an image and enable its units."""
    units = _unpack(root, tarball)
    for command in (*_before_start(), ["systemctl", "enable", *units]):
        process.run([*IN_ROOT, str(root), *command], timeout=TIMEOUT)


def install(host: Host, tarball: Path) -> None:
    """Install or upgrade the package in a running host: enabled and started at first, restarted by an upgrade."""
    upgrade = (host.root / OWNED).exists()
    units = _unpack(host.root, tarball)
    after = [
        *_before_start(),
        ["systemd-tmpfiles", "--create", "--prefix=/run/nodeagent", "--prefix=/var/lib/nodeagent"],
        ["systemctl", "daemon-reload"],
        ["systemctl", "reload", "dbus.service"],  # reads the new service's policy
        ["systemctl", "try-restart", *units] if upgrade else ["systemctl", "enable", "--now", *units],
    ]
    for command in after:
        host.run(command, timeout=TIMEOUT)


def _before_start() -> Sequence[Sequence[str]]:
    return (["systemd-sysusers"], ["journalctl", "--update-catalog"])


def _unpack(root: Path, tarball: Path) -> list[str]:
    """Unpack over `root` and return the units that the presets of the package enable.

    From outside, because the guest has no decompressor to speak of; it is the same filesystem.
    """
    listed = process.run(["tar", "--list", "--file", str(tarball)], timeout=TIMEOUT).stdout.decode().splitlines()
    names = {name.removeprefix("./").rstrip("/") for name in listed}
    foreign = sorted(name for name in names if name and not (name == "usr" or name.startswith("usr/")))
    if foreign:
        raise HostRingError(f"{tarball.name} has files outside usr: {', '.join(foreign[:5])}")
    process.run(
        [
            *("tar", "--extract", "--file", str(tarball), "--directory", str(root)),
            *("--no-same-owner", "--same-permissions", "--no-overwrite-dir", "--keep-directory-symlink"),
        ],
        timeout=TIMEOUT,
    )
    _remove_stale(root, names)
    lines = (root / PRESETS).read_text().splitlines()
    return sorted(line.removeprefix("enable ") for line in lines if line.startswith("enable "))


def _remove_stale(root: Path, names: set[str]) -> None:
    """Remove what an older version of the package had and this one has not."""
    for path in sorted((root / OWNED).rglob("*"), reverse=True):
        if str(path.relative_to(root)) not in names:
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()
