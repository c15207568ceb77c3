# SPDX-License-Identifier: Apache-2.0
"""The files of libostree on a host, in a folder: deployments, boot menu, what is staged, and the commits of images.

What is real about them is checked on real hosts: `integration/hosts/ostree`.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.vardict import vardict

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
OSNAME = "fedora-coreos"
ARGUMENTS = "root=LABEL=root quiet"


def reference(content: str) -> str:
    """Return the reference of the image whose digest consists of one digit."""
    return f"ostree-unverified-registry:quay.io/org/os@sha256:{content * 64}"


@dataclass
class FakeDeployment:
    checksum: str
    serial: int = 0
    image: str = ""
    options: str = ARGUMENTS
    more_origin: str = ""
    entry: str = ""  # further lines of its boot entry

    @property
    def id(self) -> str:
        return f"{OSNAME}-{self.checksum}.{self.serial}"

    @property
    def name(self) -> str:
        return f"{self.checksum}.{self.serial}"

    @property
    def origin(self) -> str:
        return f"[origin]\ncontainer-image-reference={self.image}\n{self.more_origin}"


@dataclass
class FakeSysroot:
    """``write`` makes the files of ``root`` what the other fields say."""

    root: Path
    deployments: list[FakeDeployment] = field(
        default_factory=lambda: [FakeDeployment(A, image=reference("0")), FakeDeployment(C, image=reference("9"))]
    )
    booted: str = f"{OSNAME}-{A}.0"
    staged: FakeDeployment | None = None
    locked: bool = False
    legacy_lock: bool = False

    def write(self) -> None:
        (self.root / "run/ostree").mkdir(parents=True, exist_ok=True)
        deploy = self.root / f"ostree/deploy/{OSNAME}/deploy"
        deploy.mkdir(parents=True, exist_ok=True)
        there = [*([self.staged] if self.staged else []), *self.deployments]
        for each in there:
            (deploy / each.name / "usr").mkdir(parents=True, exist_ok=True)
            (deploy / f"{each.name}.origin").write_text(each.origin)
        for path in deploy.iterdir():
            if path.is_dir() and path.name not in [each.name for each in there]:
                shutil.rmtree(path)
                path.with_name(f"{path.name}.origin").unlink()
        info = (deploy / self.booted.rpartition("-")[2]).stat()
        note = {"composefs": True, "backing-root-device-inode": (info.st_dev, info.st_ino)}
        (self.root / "run/ostree-booted").write_bytes(vardict(note))
        self._write_entries()
        self._write_staged()

    def commit(self, checksum: str, digest: str = "", version: str = "") -> None:
        """Put the commit of an image into the repository."""
        config = {"config": {"Labels": {"org.opencontainers.image.version": version}}}
        metadata = vardict({"ostree.manifest-digest": digest, "ostree.container.image-config": json.dumps(config)})
        # Behind the metadata come the other members, then where the first one ends.
        rest = b"\0" * 400
        path = self.root / f"ostree/repo/objects/{checksum[:2]}/{checksum[2:]}.commit"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(metadata + rest + len(metadata).to_bytes(2, "little"))

    def _write_entries(self) -> None:
        made = self.root / f"boot/loader.{time.monotonic_ns()}"
        (made / "entries").mkdir(parents=True)
        for order, each in zip(range(len(self.deployments), 0, -1), self.deployments, strict=True):
            link = self.root / f"ostree/boot.1/{OSNAME}/{each.checksum}/{each.serial}"
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(f"../../../deploy/{OSNAME}/deploy/{each.name}")
            lines = (
                f"version {order}",
                f"options {each.options} ostree=/ostree/boot.1/{OSNAME}/{each.checksum}/{each.serial}",
                f"linux /ostree/{OSNAME}-{each.checksum}/vmlinuz-6.1",
            )
            (made / f"entries/ostree-{order}.conf").write_text("\n".join(lines) + f"\n{each.entry}")
        link = made.with_name("link")
        link.symlink_to(made.name)
        link.replace(self.root / "boot/loader")

    def _write_staged(self) -> None:
        state, legacy = (self.root / "run/ostree" / f"staged-deployment{end}" for end in ("", "-locked"))
        if self.staged is None:
            state.unlink(missing_ok=True)
            legacy.unlink(missing_ok=True)
            return
        target = {"name": self.staged.name, "osname": OSNAME, "bootcsum": self.staged.checksum}
        # Without a value it is not locked.
        lock = {"locked": True} if self.locked and not self.legacy_lock else {}
        state.write_bytes(vardict({"target": target, "kargs": self.staged.options.split(), **lock}))
        legacy.touch() if self.locked and self.legacy_lock else legacy.unlink(missing_ok=True)
