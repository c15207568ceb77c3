# SPDX-License-Identifier: Apache-2.0
"""`nodeagent write-sysroot`: make /sysroot writable for ostree. For nodeagent-pull.service only.

`ostree admin` does this itself, `ostree container` does not. The unit has a mount namespace of its own, in which each
of its commands would begin again: so this one mounts, and then becomes ostree.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_REMOUNT: Final = ("/usr/bin/mount", "-o", "remount,rw", "/sysroot")
_OSTREE: Final = "/usr/bin/ostree"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arguments", nargs="+", metavar="ARGUMENT", help="an argument of ostree")


def run(args: argparse.Namespace) -> int:  # noqa: RET503 - execv does not return
    if _mounts_of_the_host():
        print("error: this is not a mount namespace of its own", file=sys.stderr)
        return 1
    # SELinux denies mount the file that is the output of this program.
    done = subprocess.run(_REMOUNT, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        print("error:", os.fsdecode(done.stderr).partition("\n")[0], file=sys.stderr)
        return done.returncode
    os.execv(_OSTREE, [_OSTREE, *args.arguments])  # noqa: S606 - there is no shell


def _mounts_of_the_host(proc: Path = Path("/proc")) -> bool:
    """Return whether a mount here would be one of the host. Raises ``OSError`` for a user who may not know."""
    return (proc / "self/ns/mnt").readlink() == (proc / "1/ns/mnt").readlink()
