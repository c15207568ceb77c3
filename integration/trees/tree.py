# SPDX-License-Identifier: Apache-2.0
"""The declaration of one version of the operating system: the base image and what is different from it.

Two equal Trees are one commit. Whatever goes into a Tree and is not data (a Part) says by its digest what it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEFAULTS = "/etc/release-defaults.conf"  # a default in /etc that changes with the version, so that /etc is merged
CONTENT = "/usr/share/release/content"  # a file of /usr that changes with the version
NEW_UNIT = "release-b.service"
BAD_UNIT = "release-check.service"

MARKER = """\
[Unit]
Description=Comes with a version of the operating system

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command}

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is installed into the tree by a program, such as a package that was just built."""

    name: str
    digest: bytes  # of all that the result depends on
    install: Callable[[Path], None]  # gets the root with /etc at its place and what packages had in /var gone


@dataclass(frozen=True, slots=True)
class Tree:
    """A version of the operating system. Paths are absolute; what is in /etc becomes a default (usr/etc)."""

    version: str
    files: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)  # name to text; enabled if it has an [Install]
    packages: tuple[str, ...] = ()  # of Debian, on top of those of the base
    parts: tuple[Part, ...] = ()

    def having(self, *parts: Part) -> Tree:
        """Return this version with more parts installed."""
        return Tree(self.version, self.files, self.units, self.packages, (*self.parts, *parts))

    def key(self) -> bytes:
        """The same for equal trees, in this process and in any other."""
        parts = [(part.name, part.digest.hex()) for part in self.parts]
        about = [self.version, sorted(self.files.items()), sorted(self.units.items()), sorted(self.packages), parts]
        return json.dumps(about).encode()


A = Tree(
    version="41.1.0",
    files={DEFAULTS: "release = a\n", CONTENT: "content of a\n"},
    units={BAD_UNIT: MARKER.format(command="/bin/true")},
)
B = Tree(
    version="41.2.0",
    files={DEFAULTS: "release = b\n", CONTENT: "content of b\n", "/usr/share/release/only-b": "new in b\n"},
    units={BAD_UNIT: MARKER.format(command="/bin/true"), NEW_UNIT: MARKER.format(command="/bin/true")},
)
BAD = Tree(
    version="41.3.0",
    files={DEFAULTS: "release = bad\n", CONTENT: "content of bad\n"},
    units={BAD_UNIT: MARKER.format(command="/bin/false")},
)
"""Boots, but BAD_UNIT fails in it, which A and B have as well and which works there."""
