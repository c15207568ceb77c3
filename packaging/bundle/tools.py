"""The programs that a build needs, and how they are run. As root, what is missing is installed, and that is said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bundle.errors import BuildError

INSTALL_TIMEOUT = 900.0  # seconds; Maven brings a Java with it
# program -> package, the same in Debian and Fedora
PACKAGES = {"mvn": "maven", "sqfstar": "squashfs-tools", "git": "git"}


def say(message: str) -> None:
    print(f"package: {message}", flush=True)


def run(
    argv: Sequence[str | Path], *, timeout: float, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> bytes:
    """Standard output of `argv`. `timeout` in seconds. Raises BuildError with the end of what it said."""
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, timeout=timeout, check=False, env=dict(env) if env else None
        )
    except FileNotFoundError as error:
        raise BuildError(f"{argv[0]} is not on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{argv[0]} took longer than {timeout:g} s") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace")[-2000:]
        raise BuildError(f"{' '.join(map(str, argv))}: exit status {done.returncode}\n{said}")
    return done.stdout


def require(program: str) -> str:
    """The path of `program`, installed first where that is possible. Raises BuildError saying what to install."""
    found = shutil.which(program)
    if found is None:
        _install(PACKAGES[program])
        found = shutil.which(program)
    if found is None:
        raise BuildError(f"{program} is still missing after its package {PACKAGES[program]} was installed")
    return found


def uv() -> str:
    """The uv of the environment that runs this build, which is the locked one."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise BuildError("uv is missing: run this from the development environment (make venv)")
    return found


def _install(package: str) -> None:
    commands: list[list[str]]
    if shutil.which("apt-get"):
        commands = [["apt-get", "update", "-qq"], ["apt-get", "install", "-qqy", "--no-install-recommends", package]]
    elif shutil.which("dnf"):
        commands = [["dnf", "-qy", "install", package]]
    else:
        raise BuildError(f"the package {package} is missing and this machine has neither apt nor dnf")
    if os.geteuid() != 0:
        raise BuildError(f"missing: {package}. Install it (as root: {' '.join(commands[-1])}), then run this again")
    say(f"installing {package}")
    for command in commands:
        run(command, timeout=INSTALL_TIMEOUT, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
