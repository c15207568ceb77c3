# SPDX-License-Identifier: Apache-2.0
"""Run the programs that a build needs. As root, missing ones are installed, with a message."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bundle.errors import BuildError

# Seconds. Maven needs a Java.
INSTALL_TIMEOUT = 900.0
TOOLS = Path(__file__).parents[1] / "tools.sh"


def log(message: str) -> None:
    print(f"package: {message}", flush=True)


def run(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    umask: int = 0o022,
    cwd: Path | None = None,
    user: int | None = None,
) -> bytes:
    """Run `argv` and return its standard output. `timeout` in seconds. Raises BuildError with its messages.

    Programs put the modes of the files that they write into archives, so `umask` is not that of the user. Root can have
    a program run as another `user`, with the group of the same number and no other.
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
            cwd=cwd,
            user=user,
            group=user,
            extra_groups=None if user is None else (),
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
    """Return the path of `program`, and install it if possible.

    Raises BuildError with the command that installs it on this distribution.
    """
    if shutil.which(program) is None:
        install(program)
    found = shutil.which(program)
    if found is None:
        raise BuildError(f"{program} is installed, but not in PATH")
    return found


def install(name: str) -> None:
    """Install what is missing of a program, or of a group of programs of tools.txt.

    Raises BuildError with the command that installs it on this distribution.
    """
    argv: list[str | Path] = [TOOLS, "install", name]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False)
    for line in done.stdout.splitlines():
        log(line)
    if done.returncode:
        raise BuildError(done.stderr.strip())


def uv() -> str:
    """Return the path of the locked uv, which is that of the environment that runs this build."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise BuildError("uv is missing: run this from the development environment (make venv)")
    return found
