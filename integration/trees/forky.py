# SPDX-License-Identifier: Apache-2.0
"""The libostree of Debian forky for trees of trixie, whose own is two years older than what hosts with bootc have.

Only these packages are taken from forky. Every other package of it is refused, so glibc and systemd stay those of
trixie, and apt fails where that cannot be.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from integration.hosts.container import recipe

SUITE = "forky"
PACKAGES = ("libostree-1-1", "ostree", "ostree-boot", "gir1.2-ostree-1.0", "libcomposefs1", "libgpgme45")
SOURCES = "etc/apt/sources.list.d/forky.list"
PREFERENCES = "etc/apt/preferences.d/forky.pref"
PINS = f"""\
Package: {" ".join(PACKAGES)}
Pin: release n={SUITE}
Pin-Priority: 990

Package: *
Pin: release n={SUITE}
Pin-Priority: -10
"""


@contextlib.contextmanager
def offered(root: Path) -> Iterator[None]:
    """Let apt in a root take PACKAGES from forky, on the mirrors of the root."""
    lines = (root / "etc/apt/sources.list").read_text().splitlines()
    sources = [line.replace(f" {recipe.SUITE} ", f" {SUITE} ") for line in lines if f" {recipe.SUITE} " in line]
    try:
        (root / SOURCES).write_text("\n".join([*sources, ""]))
        (root / PREFERENCES).write_text(PINS)
        yield
    finally:
        (root / SOURCES).unlink(missing_ok=True)
        (root / PREFERENCES).unlink(missing_ok=True)
