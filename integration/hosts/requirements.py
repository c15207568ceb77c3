"""The programs that this machine must have to boot test hosts. Installs what is missing, or says exactly what is."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from integration.hosts import process
from integration.hosts.errors import CommandFailed, Unavailable

Say = Callable[[str], None]

INSTALL_TIMEOUT = 600.0
# Of a package manager that the machine runs on its own, such as unattended upgrades.
APT_OPTIONS = ("-o", "DPkg::Lock::Timeout=300")


class Tool(NamedTuple):
    program: str
    debian: str
    fedora: str


TO_BOOT = (
    Tool("systemd-nspawn", "systemd-container", "systemd-container"),
    Tool("nsenter", "util-linux", "util-linux"),
    Tool("mount", "mount", "util-linux"),
    Tool("chattr", "e2fsprogs", "e2fsprogs"),
)
TO_BUILD = (
    Tool("mmdebstrap", "mmdebstrap", "mmdebstrap"),
    Tool("tar", "tar", "tar"),
)
# The suite's archive keys. Debian 12 got them by an update of the package, so an older one may still lack them.
KEYRINGS = Path("/usr/share/keyrings")
DEBIAN_KEYS = "debian-archive-trixie-stable.*"
FEDORA_KEYS = "debian-archive-keyring.*"


def ensure(say: Say, *, build: bool, more: tuple[Tool, ...] = ()) -> None:
    """Make the machine able to boot hosts and, with `build`, to make their image; `more` is what else the ring needs.

    Raises Unavailable with the reason when it cannot be.
    """
    if platform.system() != "Linux":
        raise Unavailable("test hosts are Linux containers and this is not Linux")
    if os.geteuid() != 0:
        raise Unavailable("test hosts need root: systemd-nspawn and overlay mounts are for root only")
    if _missing(build=build, more=more):
        with installing():
            # Another worker of this run may have installed them while this one waited.
            if missing := _missing(build=build, more=more):
                _install(missing, say)
            left = _missing(build=build, more=more)
        if left:
            raise Unavailable(f"still missing after installing them: {', '.join(left)}")
    try:
        process.run(["unshare", "--mount", "true"], timeout=10)
    except CommandFailed as error:
        raise Unavailable(f"this root may not create mount namespaces (CAP_SYS_ADMIN is needed): {error}") from None


@contextlib.contextmanager
def installing() -> Iterator[None]:
    """Hold the lock of whatever installs packages: package managers fail at once where another one runs."""
    with (Path(tempfile.gettempdir()) / "nodeagent-install.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _missing(*, build: bool, more: tuple[Tool, ...]) -> list[str]:
    """Names of the packages to install, in this machine's own packaging."""
    debian = shutil.which("apt-get") is not None
    tools = (*TO_BOOT, *(TO_BUILD if build else ()), *more)
    packages = [(tool.debian if debian else tool.fedora) for tool in tools if shutil.which(tool.program) is None]
    if build and not any(KEYRINGS.glob(DEBIAN_KEYS if debian else FEDORA_KEYS)):
        packages.append("debian-archive-keyring" if debian else "debian-keyring")
    return sorted(set(packages))


def _install(packages: list[str], say: Say) -> None:
    wanted = " ".join(packages)
    if shutil.which("apt-get") is not None:
        say(f"installing with apt-get: {wanted}")
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", *APT_OPTIONS, "-qy", "--no-install-recommends", *packages]
        commands = [["apt-get", "update", "-q"], install]
    elif shutil.which("dnf") is not None:
        say(f"installing with dnf: {wanted}")
        env = dict(os.environ)
        commands = [["dnf", "install", "-qy", "--setopt=install_weak_deps=False", *packages]]
    else:
        raise Unavailable(f"missing, and neither apt-get nor dnf is here to install it: {wanted}")
    for command in commands:
        try:
            process.run(command, timeout=INSTALL_TIMEOUT, env=env)
        except CommandFailed as error:
            raise Unavailable(f"missing: {wanted}; installing it failed: {error}") from None
