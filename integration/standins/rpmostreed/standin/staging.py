# SPDX-License-Identifier: Apache-2.0
"""Staging, with the lock where this release has it, and what can be asked of the lock.

Introspection cannot set a string array inside a struct, so the kernel arguments go into the options of
ostree_sysroot_stage_tree_with_options() by address. The older stage_tree() takes them, but cannot lock, and unlocking
and locking afterwards would leave a moment in which a shutdown finalizes a deployment that is not released.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

from integration.standins.rpmostreed.standin.gir import OSTree
from integration.standins.rpmostreed.standin.transaction import Work

LEGACY_LOCK = Path("/run/ostree/staged-deployment-locked")
KERNEL_ARGV_OFFSET = 64  # in OstreeSysrootDeployTreeOpts, public ABI: 8 gbooleans and 8 ints stand before it


def stage(work: Work, osname: str, revision: str, origin: Any, merge: Any, kargs: list[str], *, locked: bool) -> Any:
    """The new staged deployment. Raises GLib.Error."""
    if work.profile.legacy_lock_file:
        # Before it is staged, as it was done then. libostree removes the file with a staged deployment that was there
        # before, and so unlocks the second one in a row: a bug of its time that hosts had, and that is left in.
        if locked:
            LEGACY_LOCK.parent.mkdir(parents=True, exist_ok=True)
            LEGACY_LOCK.touch()
        else:
            LEGACY_LOCK.unlink(missing_ok=True)
    options = OSTree.SysrootDeployTreeOpts()
    options.locked = locked and not work.profile.legacy_lock_file
    argv = (ctypes.c_char_p * (len(kargs) + 1))(*(word.encode() for word in kargs), None)
    ctypes.c_void_p.from_address(_address(options) + KERNEL_ARGV_OFFSET).value = ctypes.addressof(argv)
    try:
        _, deployment = work.sysroot.stage_tree_with_options(osname, revision, origin, merge, options, work.cancellable)
    finally:
        ctypes.c_void_p.from_address(_address(options) + KERNEL_ARGV_OFFSET).value = None
    return deployment


def is_locked(work: Work, deployment: Any) -> bool:
    return LEGACY_LOCK.exists() if work.profile.legacy_lock_file else bool(deployment.is_finalization_locked())


def unlock(work: Work, deployment: Any) -> None:
    """Raises GLib.Error."""
    if work.profile.legacy_lock_file:
        LEGACY_LOCK.unlink(missing_ok=True)
    else:
        work.sysroot.change_finalization(deployment)


def _address(struct: Any) -> int:
    match = re.search(r" at (0x[0-9a-f]+)\)>$", repr(struct))
    if match is None:
        raise RuntimeError(f"PyGObject no longer shows where a struct is: {struct!r}")
    return int(match[1], 16)
