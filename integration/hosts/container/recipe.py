# SPDX-License-Identifier: Apache-2.0
"""The content of the base image of a test host. The image is cached by the code of this file.

Debian is used because its tools build a root filesystem anywhere in half a minute. The guest has no Python, like the
hosts that nodeagent is for, so that a package which needs the system's one cannot pass.
"""

from __future__ import annotations

import platform
from pathlib import Path

from integration.hosts import process

SUITE = "trixie"
UNSTABLE = "sid"
BUILD_TIMEOUT = 900.0

PACKAGES = (
    "systemd",
    "systemd-sysv",
    "libpam-systemd",  # without it a login is no logind session
    "dbus",
    "polkitd",
    "udev",
    "openssh-server",
    "sudo",
    "procps",
    "passwd",
    "login",
    "util-linux",
    "e2fsprogs",  # chattr
)

# Nothing of these is ever read in a test host, and they are a third of the size.
EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")

# Timers that would wake up in the middle of a test; what a container cannot use; and what no test looks at: two hundred
# boots make a run of the ring, and a unit costs each of them 10 ms of processor time at least.
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "systemd-tmpfiles-clean.timer",
    "systemd-initctl.socket",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "run-lock.mount",
    "ssh.service",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    "systemd-creds.socket",
    "systemd-hostnamed.socket",
    "systemd-remount-fs.service",
    "systemd-sysctl.service",
    "systemd-sysext.socket",
    "systemd-tmpfiles-setup-dev-early.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-udev-load-credentials.service",
    "tmp.mount",
)
GENERATORS = "/usr/lib/systemd/system-generators"  # run at each boot and daemon-reload; none has work in a container

FILES = {
    # A test kills and reboots hosts all day; nothing in them deserves the 90 s that a real host grants.
    "/etc/systemd/system.conf.d/10-ring.conf": "[Manager]\nDefaultTimeoutStopSec=3s\nRebootWatchdogSec=0\n",
    # Tests read the journal after a power cut and must not lose lines to rate limits.
    "/etc/systemd/journald.conf.d/10-ring.conf": (
        "[Journal]\nStorage=persistent\nSyncIntervalSec=1s\nRateLimitBurst=0\nSystemMaxUse=64M\n"
    ),
    "/etc/hostname": "node\n",
    "/etc/hosts": "127.0.0.1 localhost node\n::1 localhost\n",
    "/etc/resolv.conf": "",
    "/etc/locale.conf": "LANG=C.UTF-8\n",
    # Where Fedora CoreOS and RHCOS look for the keys that a MachineConfig gives.
    "/etc/ssh/sshd_config.d/40-coreos.conf": (
        "AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys.d/ignition\n"
    ),
}


def build(root: Path, mirrors: list[str], apt_options: list[str], suite: str = SUITE) -> None:
    """Make the root filesystem in `root`, which must not exist. No `mirrors` means mmdebstrap's own default.

    A mirror may be a whole line of sources.list, or an option of mmdebstrap.
    """
    process.run(
        [
            "mmdebstrap",
            "--variant=minbase",
            "--format=directory",
            f"--include={','.join(PACKAGES)}",
            "--aptopt=Apt::Install-Recommends false",
            *(f"--aptopt={option}" for option in apt_options),
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED),
            suite,
            str(root),
            *mirrors,
        ],
        timeout=BUILD_TIMEOUT,
        # The umask and locale of the caller must not get into the image.
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root"},
    )
    _customize(root)


def architecture() -> str:
    return platform.machine()


def _customize(root: Path) -> None:
    def inside(*argv: str) -> None:
        process.run(["chroot", str(root), *argv], timeout=60)

    for path, text in FILES.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o644)
    # Homes are under /var where /usr and / come from an image; /home is the link that people use.
    (root / "home").rmdir()
    (root / "var/home").mkdir()
    (root / "home").symlink_to("var/home")
    inside("groupadd", "--system", "wheel")
    inside("useradd", "--create-home", "--home-dir=/var/home/core", "--uid=1000", "--shell=/bin/bash", "core")
    inside("usermod", "--append", "--groups=wheel,sudo,adm,systemd-journal", "core")
    inside("systemctl", "mask", *MASKED)
    masked = root / "etc/systemd/system-generators"
    masked.mkdir()
    for generator in (root / GENERATORS.lstrip("/")).iterdir():
        (masked / generator.name).symlink_to("/dev/null")
    inside("systemctl", "set-default", "multi-user.target")
    (root / "var/log/journal").mkdir(exist_ok=True)
    # Every host writes its own.
    (root / "etc/machine-id").write_text("")
