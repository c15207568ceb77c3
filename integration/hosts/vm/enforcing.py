# SPDX-License-Identifier: Apache-2.0
"""Machines that boot with SELinux enforcing, and what their audit logs say about nodeagent."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from integration.hosts.vm import image
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.enforcing import CONTEXTS, EnforcingRepo

# Each replaces the argument of the same name in guest.KARGS. The kernel of the tree has no parameter selinux=.
KARGS = ("lsm=selinux", "enforcing=1", "audit=1", "audit_backlog_limit=8192")
ATTRIBUTE = "security.selinux"
USR, ROOT = (f"system_u:object_r:{name}:s0\0".encode() for name in ("usr_t", "root_t"))
DENIED = re.compile(r"avc: +denied .*:nodeagent(_\w+)?_t:")


def label(ostree_repo: EnforcingRepo) -> Callable[[Path, Path], None]:
    """Return the function that labels what is on a disk beside deployments: they have their labels from the commit."""

    def change(sysroot: Path, boot: Path) -> None:
        stateroot = sysroot / "ostree/deploy" / image.OSNAME
        # journald writes before systemd-tmpfiles makes directories.
        for name in ("var/lib", "var/log/journal"):
            (stateroot / name).mkdir(parents=True, exist_ok=True)
        os.setxattr(sysroot, ATTRIBUTE, ROOT)
        for path in _unlabelled(sysroot):
            os.setxattr(path, ATTRIBUTE, USR, follow_symlinks=False)
        with ostree_repo.toolbox(sysroot, boot.parent) as tools:
            tools.run("setfiles", "-F", "-r", str(stateroot), f"/{CONTEXTS}", str(stateroot / "var"))
            tools.run("setfiles", "-F", "-r", str(boot.parent), f"/{CONTEXTS}", str(boot))

    return change


def _unlabelled(sysroot: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(sysroot):
        for name in (*names, *files):
            path = Path(directory, name)
            if ATTRIBUTE not in os.listxattr(path, follow_symlinks=False):
                yield path


def denials(vm: Vm) -> Sequence[str]:
    """Return what was denied to nodeagent, or to another program with a file of nodeagent, in all boots."""
    shown = vm.run(["journalctl", "--no-pager", "-o", "cat", "_TRANSPORT=audit", "+", "_TRANSPORT=kernel"]).stdout
    return sorted({line for line in shown.splitlines() if DENIED.search(line)})
