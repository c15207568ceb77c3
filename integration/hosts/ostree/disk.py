# SPDX-License-Identifier: Apache-2.0
"""The disk of an ostree host, as an installer leaves it: a repository, one deployment, its boot loader entry.

It is a tmpfs, because libostree changes the whole filesystem that it is on: it remounts /sysroot and /boot writable,
and it freezes the one with /boot (FIFREEZE) to have the entries on disk. Done to a directory of this machine's own
filesystem that would freeze the machine. A tmpfs cannot be frozen, which libostree accepts; what was written is kept
over a power cut even where it was not synced: only the VM can lose that.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

from integration.hosts import overlay
from integration.trees.image_registry import Pulled
from integration.trees.ostree_repo import Commit, OstreeRepo

OSNAME = "fedora-coreos"
SIZE = "2g"  # at most; memory is taken for what is written, 200 MB for a first deployment
UNCHECKED = ("--disable-fsync", "--disable-verify-bindings")
KARGS = ("root=LABEL=root", "rw", "quiet")


def install(
    disk: Path,
    ostree_repo: OstreeRepo,
    source: Commit | Pulled,
    kargs: Sequence[str],
    size: str,
    boot_size: str | None = None,
) -> None:
    """Make `disk`, mount a filesystem of `size` there and one of `boot_size` at its /boot, and deploy `source`.

    From a Pulled image the deployment is what an installer makes of it: of that image, and with its layers in the
    repository. From a Commit it is of that commit.
    """
    overlay.mount_tmpfs(disk, size)
    seen = [disk]
    if boot_size is not None:
        overlay.mount_tmpfs(disk / "boot", boot_size)
        seen.append(disk / "boot")
    repo = disk / "ostree/repo"
    # All refs of the image, which is alone in its repository; just the commit out of those of all trees.
    # Those refs are not the ones that the commits were made for, as in any repository with images.
    fetched = (str(source.repo),) if isinstance(source, Pulled) else (str(ostree_repo.repo), source.checksum)
    with ostree_repo.toolbox(*seen, Path(fetched[0])) as tools:
        tools.run("ostree", "admin", "init-fs", "--modern", str(disk))
        tools.run("ostree", "config", f"--repo={repo}", "set", "sysroot.readonly", "true")
        # There is no bootloader that needs the new entry, and the memory needs no sync.
        tools.run("ostree", "config", f"--repo={repo}", "set", "sysroot.bootloader", "none")
        tools.run("ostree", "admin", f"--sysroot={disk}", "os-init", OSNAME)
        tools.run("ostree", f"--repo={repo}", "pull-local", *UNCHECKED, *fetched)
        origin = []
        if isinstance(source, Pulled):
            (disk / "origin").write_text(source.origin)
            origin = [f"--origin-file={disk / 'origin'}"]
        tools.run(
            *("ostree", "admin", f"--sysroot={disk}", "deploy", f"--os={OSNAME}", *origin),
            *(f"--karg={argument}" for argument in kargs),
            source.checksum,
        )
    (disk / "origin").unlink(missing_ok=True)
    etc = next((disk / "ostree/deploy" / OSNAME / "deploy").glob("*.0")) / "etc"
    (etc / "machine-id").write_text(uuid.uuid4().hex + "\n")


def add(disk: Path, ostree_repo: OstreeRepo, commit: Commit) -> None:
    """Put a commit into the repository of a host, on or off, as if it had been pulled."""
    with ostree_repo.toolbox(disk, ostree_repo.repo) as tools:
        tools.run(
            *("ostree", f"--repo={disk / 'ostree/repo'}", "pull-local", "--disable-fsync"),
            *(str(ostree_repo.repo), commit.checksum),
        )
