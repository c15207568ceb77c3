# SPDX-License-Identifier: Apache-2.0
"""Work after the staging of a deployment, which may fail while it stays staged: the history and the sanity check."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from integration.standins.rpmostreed.standin import deployments
from integration.standins.rpmostreed.standin.errors import Failed
from integration.standins.rpmostreed.standin.transaction import Work

HISTORY = Path("/var/lib/rpm-ostree/history")
PROGRAM = "/usr/bin/true"
CHECK_TIMEOUT = 60.0  # seconds


def write_history(work: Work, deployment: Any) -> None:
    """Raises Failed with the words of the system call."""
    content = deployments.describe(work.sysroot, work.repo, deployment).get_data_as_bytes().get_data()
    try:
        HISTORY.mkdir(mode=0o775, parents=True, exist_ok=True)
        about = _directory(work, deployment).stat()
        (HISTORY / str(int(about.st_ctime))).write_bytes(content)
    except OSError as error:
        raise Failed(error.strerror) from None


def sanity_check(work: Work, deployment: Any) -> None:
    """Runs a program of the new tree, whose /etc is not merged yet. Raises Failed with bwrap's words."""
    work.fault_point("sanity")
    if os.environ.get("RPMOSTREE_SKIP_SANITYCHECK"):  # the real daemon's own, for its tests
        return
    command = ["chroot", str(_directory(work, deployment)), PROGRAM]
    status = subprocess.run(command, check=False, capture_output=True, timeout=CHECK_TIMEOUT).returncode
    if status != 0:
        # bwrap says 1 of a program that is not there, chroot 127.
        how = f"killed by signal {-status}" if status < 0 else f"exited with code {1 if status == 127 else status}"
        raise Failed(f"Sanity-checking final rootfs: bwrap({PROGRAM}): Child process {how}")


def _directory(work: Work, deployment: Any) -> Path:
    return Path(work.host.settings.sysroot) / str(work.sysroot.get_deployment_dirpath(deployment))
