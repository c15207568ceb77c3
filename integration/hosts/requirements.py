# SPDX-License-Identifier: Apache-2.0
"""What this machine must have to boot test hosts. Installs what is missing, or reports exactly what is."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from integration.hosts import process
from integration.hosts.errors import CommandFailed, Unavailable

Say = Callable[[str], None]

# Groups of programs in packaging/tools.txt.
TO_BOOT: Final = "hosts"
TO_BUILD: Final = "images"

TOOLS: Final = Path(__file__).parents[2] / "packaging" / "tools.sh"
KEYRINGS: Final = Path("/usr/share/keyrings")
# Seconds. Another installation that runs is waited for.
INSTALL_TIMEOUT: Final = 1500.0
LOOK_TIMEOUT: Final = 60.0


def ensure(say: Say, *, build: bool, more: tuple[str, ...] = ()) -> None:
    """Make the machine able to boot hosts and, with `build`, to make their image; `more` are other groups of programs.

    Raises Unavailable with the reason when it cannot be.
    """
    if platform.system() != "Linux":
        raise Unavailable("test hosts are Linux containers and this is not Linux")
    _install("boot", say, TO_BOOT, *((TO_BUILD,) if build else ()), *more)
    try:
        process.run(["unshare", "--mount", "true"], timeout=10)
    except CommandFailed as error:
        raise Unavailable(f"this root may not create mount namespaces (CAP_SYS_ADMIN is needed): {error}") from None


def install(say: Say, *names: str) -> None:
    """Install the programs and groups of programs that are missing.

    Raises Unavailable with what is missing, and the command that installs it on this distribution.
    """
    _install("install", say, *names)


def missing(*names: str) -> str:
    """Return which of these programs are missing, with the command that installs them; "" for none."""
    done = _tools("missing", *names, timeout=LOOK_TIMEOUT)
    return done.stderr.strip() if done.returncode else ""


def distribution() -> str:
    """Return `debian`, `fedora` or `unknown`; each includes what is derived from it."""
    return _tools("distribution", timeout=LOOK_TIMEOUT).stdout.strip()


def _install(action: str, say: Say, *names: str) -> None:
    done = _tools(action, *names, timeout=INSTALL_TIMEOUT)
    for line in done.stdout.splitlines():
        say(line)
    if done.returncode:
        raise Unavailable(done.stderr.strip())


def _tools(action: str, *names: str, timeout: float) -> subprocess.CompletedProcess[str]:
    done = process.run([str(TOOLS), action, *names], timeout=timeout, check=False)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
