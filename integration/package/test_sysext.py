# SPDX-License-Identifier: Apache-2.0
"""The image under a real systemd: systemd-sysext of a Debian 13 tree takes it, and what it merges runs, also after a
reboot. The commands of docs/usage/install-extension.md install it, and those of docs/usage/upgrade.md remove it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from integration.hosts.container.container_host import Host
from integration.hosts.container.image import base_image
from integration.hosts.errors import Unavailable
from integration.package.conftest import SOURCE, Package, cannot
from integration.package.newcomer import first_week
from integration.package.test_install_pages import commands

TIMEOUT = 60.0  # seconds
PAGE = SOURCE / "docs/usage/install-extension.md"
UPGRADE = SOURCE / "docs/usage/upgrade.md"
IMAGE = "/var/lib/extensions/nodeagent.raw"
# In a mount namespace of its own: all of it is gone with the shell. The overlay is shared because systemd-sysext
# merges in a namespace that it makes, and leaves it to propagation that the caller sees the result.
SCRIPT = """
set -eu
lower=$1 scratch=$2 image=$3 root=$2/root
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$scratch/upper,workdir=$scratch/work" "$root"
mount --make-shared "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/var/lib/extensions"
cp "$image" "$root/var/lib/extensions/nodeagent.raw"
chroot "$root" systemd-sysext merge --no-reload
chroot "$root" /usr/bin/nodeagent version
test -e "$root/usr/lib/systemd/system/nodeagent.service"
chroot "$root" systemd-sysext unmerge --no-reload
test ! -e "$root/usr/bin/nodeagent"
"""


def test_systemd_merges_the_image_and_it_runs(package: Package, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        cannot("merging a system extension needs root")
    if shutil.which("losetup") is None or subprocess.run(["losetup", "--find"], capture_output=True).returncode != 0:
        cannot("this machine has no loop devices to mount an image with")
    try:
        image = base_image(print)
    except Unavailable as error:
        cannot(f"the tree of a test host cannot be made here: {error}")
    lower = ":".join(str(path) for path in reversed(image.paths))
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh", lower, tmp_path, package.raw],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    image.close()
    assert done.returncode == 0, done.stderr
    version = tomllib.loads((package.source / "pyproject.toml").read_text())["project"]["version"]
    assert version in done.stdout


@pytest.mark.finding(
    "OS: system extensions", "A system extension's agent runs after a reboot if it is enabled, and only then."
)
def test_an_enabled_agent_runs_after_a_reboot_and_a_disabled_one_does_not(package: Package) -> None:
    """The content of the image as a directory, which systemd-sysext merges in a container without loop devices."""
    try:
        image = base_image(print)
    except Unavailable as error:
        cannot(f"hosts cannot be booted here: {error}")
    with Host(image) as host:
        unpack(host, package)
        wants = host.root / "etc/systemd/system/sysinit.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / "systemd-sysext.service").symlink_to("/usr/lib/systemd/system/systemd-sysext.service")
        host.boot()
        assert started(host) == (False, False)
        host.run(["systemctl", "enable", "nodeagent.service"])
        host.run(["journalctl", "--update-catalog"])
        with host.rebooting():
            host.run(["systemctl", "reboot"])
        host.wait_for(lambda: started(host) == (True, True), "the agent was started by the boot")
        host.run(["nodeagent", "selfcheck"])
        host.run(["systemctl", "disable", "nodeagent.service"])
        with host.rebooting():
            host.run(["systemctl", "reboot"])
        assert started(host) == (False, False)
    image.close()


@pytest.mark.long
def test_the_commands_of_the_pages(host: Host, package: Package) -> None:
    host.boot()
    before = {path for top in ("usr", "etc") for path in (host.root / top).rglob("*nodeagent*")}
    install, *others = commands("On the host, as root", PAGE)
    assert install == f"install -D -m 0644 nodeagent.raw {IMAGE}"
    unpack(host, package)
    for command in others:
        host.run(["sh", "-euc", command], timeout=TIMEOUT)
    assert started(host) == (True, True)
    first_week(host)
    disable, remove = commands("**Uninstall** the system extension", UPGRADE)
    host.run(["sh", "-euc", disable], timeout=TIMEOUT)
    assert remove.startswith(f"rm {IMAGE} && ")
    host.run(["sh", "-euc", remove.replace(f"rm {IMAGE}", f"rm -r {IMAGE.removesuffix('.raw')}")], timeout=TIMEOUT)
    assert not host.exists("/usr/bin/nodeagent")
    left = {path for top in ("usr", "etc") for path in (host.root / top).rglob("*nodeagent*")} - before
    assert left <= {host.root / "etc/nodeagent"}


def unpack(host: Host, package: Package) -> None:
    """Put the content of the image where a command of the page puts the image: the container has no loop devices."""
    extension = host.root / IMAGE.removesuffix(".raw")[1:]
    extension.parent.mkdir(parents=True, exist_ok=True)
    argv = ["unsquashfs", "-quiet", "-no-progress", "-no-xattrs", "-dest", str(extension), str(package.raw)]
    subprocess.run(argv, check=True, capture_output=True, timeout=TIMEOUT)


def started(host: Host) -> tuple[bool, bool]:
    """Return whether the agent is enabled, and whether this boot started it: that is when systemd gives it an id."""
    assert host.is_active("systemd-sysext.service")
    shown = host.unit("nodeagent.service", "UnitFileState", "InvocationID", "ActiveState")
    return shown["UnitFileState"] == "enabled", bool(shown["InvocationID"]) and shown["ActiveState"] == "active"
