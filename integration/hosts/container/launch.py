# SPDX-License-Identifier: Apache-2.0
"""Runs as its own program: `launch.py CGROUP PARENT COMMAND...` becomes COMMAND, inside CGROUP, dying with PARENT.

The cgroup: with --keep-unit, nspawn puts the guest in a cgroup `payload` beside its own, so two hosts started from one
cgroup would share that one and their systemds would kill each other's services. The death: a killed test run must not
leave hosts behind. SIGTERM makes nspawn shut the guest down; SIGKILL would leave the guest running without it. Both
have to happen between fork and exec, which Python can only do safely in a process of its own when the parent has
threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(cgroup: str, parent: str, *command: str) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(parent):
        sys.exit("the parent was gone before the start")
    (Path(cgroup) / "cgroup.procs").write_text("0")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
