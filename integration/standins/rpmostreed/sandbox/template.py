# SPDX-License-Identifier: Apache-2.0
"""The initial state of a sandbox: a sysroot with one deployment, and a repo with versions of its tree to go to.

The sysroot is booted into version 1 of `os/stable` from the remote `test`. The repo also has version 2 and 3, of which
3 is on the branch, and `old`, which is older than 1. As images: quay.io/example/os with tags 2 and 3.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from integration.standins.rpmostreed import install
from integration.trees.toolbox import Toolbox

KERNEL = "6.1.0"
BRANCH = "os/stable"
IMAGE = "quay.io/example/os"
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "ostree": "sysroot/ostree"}
DIRECTORIES = ("boot", "dev", "proc", "run", "sys", "sysroot", "tmp", "var", "registry")
ETC = ("passwd", "group", "nsswitch.conf", "ld.so.cache")
CONTENT_FILES = 24
CHUNKS = 7  # and one layer more, with the commit itself
PUBLISH = ("env", f"PYTHONPATH=/{install.PROGRAM}", "python3", "-m", "integration.standins.rpmostreed.standin.publish")


@dataclass(frozen=True, slots=True)
class Template:
    sysroot: Path
    registry: Path
    commits: dict[str, str]  # version to checksum
    digests: dict[str, str]  # version to the image's digest


def build(directory: Path, root: Path, tools: Toolbox) -> Template:
    """Make it in `directory`, which `tools` sees; `root` is the Debian whose /etc is borrowed from."""
    registry, sysroot = directory / "registry", directory / "sysroot"
    repo = registry / "repo"
    repo.mkdir(parents=True)
    tools.run("ostree", "init", f"--repo={repo}", "--mode=archive")
    commits: dict[str, str] = {}
    for index, version in enumerate(("old", "1", "2", "3")):
        tree = directory / "trees" / version
        _write_tree(tree, version, root)
        previous = {"2": "1", "3": "2"}.get(version)
        branch = "os/old" if version == "old" else BRANCH
        commits[version] = tools.said(
            *("ostree", "commit", f"--repo={repo}", f"--tree=dir={tree}", "--canonical-permissions"),
            *(f"--branch={branch}", f"--bind-ref={BRANCH}", f"--timestamp=@{1_700_000_000 + index * 86400}"),
            *(f"--add-metadata-string=version={version}", "--add-metadata=ostree.bootable=true"),
            *([f"--parent={commits[previous]}"] if previous else []),
        )
    _deploy(tools, sysroot, repo, commits["1"])
    digests = {
        version: tools.said(
            *(*PUBLISH, f"--registry={registry}", f"--from={repo}", f"--commit={commits[version]}"),
            *(f"--name={IMAGE}", f"--tag={version}", f"--chunks={CHUNKS}"),
        )
        for version in ("2", "3")
    }
    return Template(sysroot, registry, commits, digests)


def _write_tree(tree: Path, version: str, root: Path) -> None:
    for name in DIRECTORIES:
        (tree / name).mkdir(parents=True)
    for name, target in LINKS.items():
        (tree / name).symlink_to(target)
    files = {
        "usr/lib/os-release": f"ID=tiny\nVERSION_ID={version}\nPRETTY_NAME=Tiny {version}\n",
        f"usr/lib/modules/{KERNEL}/vmlinuz": f"kernel {version}\n",
        f"usr/lib/modules/{KERNEL}/initramfs.img": f"initramfs {version}\n",
        "usr/etc/from-the-os": f"{version}\n",
        "usr/share/rpmostreed-standin/packages/bash": "bash\n",
        # Little is new in each version, so that images share layers.
        **{
            f"usr/share/content/{index}": f"{index} {version if index == 0 else ''}\n" * 50
            for index in range(CONTENT_FILES)
        },
    }
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    for name in ETC:
        shutil.copyfile(root / "etc" / name, tree / "usr/etc" / name)


def _deploy(tools: Toolbox, sysroot: Path, repo: Path, checksum: str) -> None:
    sysroot.mkdir()
    there = f"--sysroot={sysroot}"
    system_repo = f"--repo={sysroot}/ostree/repo"
    tools.run("ostree", "admin", "init-fs", "--modern", str(sysroot))
    tools.run("ostree", "admin", "os-init", there, "tiny")
    tools.run("ostree", "remote", "add", system_repo, "--no-sign-verify", "test", "file:///registry/repo")
    tools.run("ostree", "pull-local", system_repo, "--remote=test", str(repo), checksum)
    tools.run("ostree", "refs", system_repo, f"--create=test:{BRANCH}", checksum)
    tools.run(
        *("ostree", "admin", "deploy", there, "--os=tiny", "--karg=root=LABEL=root", "--karg=console=ttyS0"),
        f"test:{BRANCH}",
    )
    tools.run("ostree", "config", system_repo, "set", "sysroot.bootloader", "none")
