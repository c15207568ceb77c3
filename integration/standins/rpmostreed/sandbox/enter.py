# SPDX-License-Identifier: Apache-2.0
"""Runs as its own program in new mount and PID namespaces: `enter.py ROOT SYSROOT REGISTRY SCRATCH COMMAND...`.

Makes the first deployment of SYSROOT the root, with /usr of ROOT, and becomes COMMAND in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

STATEROOT = "ostree/deploy/tiny"


def main(*arguments: str) -> None:
    root, sysroot, registry, scratch = map(Path, arguments[:4])
    command = arguments[4:]
    booted = min((sysroot / STATEROOT / "deploy").glob("*.0"))
    target = scratch / "root"
    target.mkdir(exist_ok=True)
    _mount("--make-rprivate", "/")
    _mount("--bind", booted, target)
    for source, name in (
        (root / "usr", "usr"),
        (sysroot, "sysroot"),
        (sysroot / "boot", "boot"),
        (sysroot / STATEROOT / "var", "var"),
        (registry, "registry"),
        (Path("/dev"), "dev"),
    ):
        _mount("--rbind" if name == "dev" else "--bind", source, target / name)
    for name in ("run", "tmp"):
        _mount("-t", "tmpfs", "-o", "mode=1777" if name == "tmp" else "mode=755", "tmpfs", target / name)
    _mount("-t", "proc", "proc", target / "proc")
    (target / "run/ostree-booted").touch()
    os.chroot(target)
    os.chdir("/")
    os.execv(command[0], command)


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
