# SPDX-License-Identifier: Apache-2.0
"""Runs in the trees' own system: `python3 -m integration.trees.pull_image REGISTRY REPO REFERENCE` prints the commit.

It pulls an image into a repository by the stand-in's own code, so that a host can be installed from an image and later
finds there what an update by the stand-in expects. Nothing of the rest of the daemon is needed for that.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from integration.standins.rpmostreed.standin import container_image
from integration.standins.rpmostreed.standin.gir import Gio, OSTree
from integration.standins.rpmostreed.standin.profile import PROFILES
from integration.standins.rpmostreed.standin.refspec import parse_image


class Quiet:
    """The output of a transaction without a client."""

    def message(self, text: str) -> None:
        pass

    def task(self, text: str) -> Quiet:
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def main(registry: str, path: str, reference: str) -> None:
    repo = OSTree.Repo.new(Gio.File.new_for_path(path))
    repo.open(None)
    work: Any = SimpleNamespace(
        repo=repo,
        profile=PROFILES[2026],
        output=Quiet(),
        cancellable=None,
        fault_point=lambda _: None,
        stop_if_cancelled=lambda: None,
        host=SimpleNamespace(settings=SimpleNamespace(registry=Path(registry))),
    )
    print(container_image.pull(work, parse_image(reference)))


if __name__ == "__main__":
    main(*sys.argv[1:])
