# SPDX-License-Identifier: Apache-2.0
"""The names of the files that hold the tree of one version, for one machine."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

NAME = "nodeagent"
TAR = ".tar.gz"
# The last part of the names of files whose interpreter is for tests only.
MARK = "-testing"


class Name(NamedTuple):
    version: str
    machine: str
    testing: bool = False

    @classmethod
    def of(cls, tar: Path) -> Name:
        """Return the name of the package `tar`."""
        stem = tar.name.removeprefix(f"{NAME}-").removesuffix(TAR)
        version, machine = stem.removesuffix(MARK).rsplit("-", 1)
        return cls(version, machine, stem.endswith(MARK))

    @property
    def full_version(self) -> str:
        """The version with the mark."""
        return self.version + (MARK if self.testing else "")

    def file(self, suffix: str, kind: str = "") -> str:
        """Return the name of a file of this `kind`, such as nodeagent-os-1.0-x86_64.oci.tar."""
        parts = (NAME, kind, self.version, self.machine)
        return "-".join(filter(None, parts)) + (MARK if self.testing else "") + suffix
