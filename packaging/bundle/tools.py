"""Run the programs that a build needs. As root, missing ones are installed, with a message."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bundle.errors import BuildError

# Seconds. Maven needs a Java.
INSTALL_TIMEOUT = 900.0
# Program -> package of Fedora, and of Debian as well but for those below.
PACKAGES = {
    "mvn": "maven",
    "sqfstar": "squashfs-tools",
    "git": "git",
    "rpmbuild": "rpm-build",
    "rpmlint": "rpmlint",
}
DEBIAN = {"rpm-build": "rpm"}


def log(message: str) -> None:
    print(f"package: {message}", flush=True)


def run(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    umask: int = 0o022,
) -> bytes:
    """Run `argv` and return its standard output. `timeout` in seconds. Raises BuildError with its messages.

    Programs put the modes of the files that they write into archives, so `umask` is not that of the user.
    """
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            timeout=timeout,
            check=False,
            env=dict(env) if env else None,
            umask=umask,
        )
    except FileNotFoundError as error:
        raise BuildError(f"{argv[0]} is not on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{argv[0]} took longer than {timeout:g} s") from error
    if done.returncode != 0:
        messages = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace")[-2000:]
        raise BuildError(f"{' '.join(map(str, argv))}: exit status {done.returncode}\n{messages}")
    return done.stdout


def require(program: str) -> str:
    """Return the path of `program`, and install it if possible. Raises BuildError with the package to install."""
    found = shutil.which(program)
    if found is None:
        _install(PACKAGES[program])
        found = shutil.which(program)
    if found is None:
        raise BuildError(f"{program} is still missing after its package {PACKAGES[program]} was installed")
    return found


def uv() -> str:
    """Return the path of the locked uv, which is that of the environment that runs this build."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise BuildError("uv is missing: run this from the development environment (make venv)")
    return found


def _install(package: str) -> None:
    commands: list[list[str]]
    if shutil.which("apt-get"):
        commands = [
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-qqy", "--no-install-recommends", DEBIAN.get(package, package)],
        ]
    elif shutil.which("dnf"):
        commands = [["dnf", "-qy", "install", package]]
    else:
        raise BuildError(f"the package {package} is missing and this machine has neither apt nor dnf")
    if os.geteuid() != 0:
        raise BuildError(f"missing: {package}. Install it (as root: {' '.join(commands[-1])}), then run this again")
    log(f"installing {package}")
    for command in commands:
        run(command, timeout=INSTALL_TIMEOUT, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
