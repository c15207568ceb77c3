"""The image under a real systemd: systemd-sysext of a Debian 13 tree takes it, and what it merges runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

from integration.host.errors import Unavailable
from integration.host.image import base_image
from integration.package.conftest import Package, cannot

TIMEOUT = 60.0  # seconds
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
