# SPDX-License-Identifier: Apache-2.0
"""The real `ostree container`, which bootc and rpm-ostree ship, built once from the crate ostree-ext.

python -m integration.trees.ostree_container    fills the cache, and prints how long that took and where it is

The package `ostree-container` beside this file has a `main` of that crate alone, and the lock file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from integration.hosts.cargo import Program
from integration.hosts.container.image import tree_digest

SOURCE: Final = Path(__file__).with_name("ostree-container")
OSTREE_CONTAINER: Final = Program(
    name="ostree-container",
    version="0.15.3",
    source=("--path", str(SOURCE)),
    content=tree_digest(SOURCE),
    takes="three minutes",
    tools=("ostree-container",),
    rust="1.85",
)


if __name__ == "__main__":
    OSTREE_CONTAINER.main()
