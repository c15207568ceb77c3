# SPDX-License-Identifier: Apache-2.0
"""Names in the drop-in trees below /etc/nodeagent that nothing reads: a misspelt one, another suffix.

What is misspelt would be silent otherwise, and noticed only when the setting is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nodeagent.errors import Problem
from nodeagent.installed import AdminTree, trees

ETC: Final = Path("/etc/nodeagent")
# Directories of YAML files, of which only *.yaml is read.
YAML: Final = ("config.d", "policy.d")
# Endings of files that an admin means to be read. Backups and files that are switched off have others.
MEANT: Final = frozenset({".yml", ".json", ".conf", ".toml", ""})


def unread_names(root: Path = ETC) -> list[Problem]:
    """Return the entries that nothing reads. Blocks for some small directories."""
    of_features = (problem for tree in trees() for problem in _of_feature(tree, root / tree.name))
    return [*of_features, *(problem for name in YAML for problem in _yaml(root / name))]


def _of_feature(tree: AdminTree, directory: Path) -> Iterator[Problem]:
    for path in _visible(directory):
        if not path.name.startswith("README") and (message := tree.unread(path.name)):
            yield Problem(str(path), message)


def _yaml(directory: Path) -> Iterator[Problem]:
    for path in _visible(directory):
        other = path.suffix in MEANT or (path.suffix.lower() == ".yaml" and path.suffix != ".yaml")
        if other and not path.name.startswith("README"):
            yield Problem(str(path), "is not read: its name must end with .yaml")


def _visible(directory: Path) -> Iterator[Path]:
    """Yield the entries in the order of their names, without hidden ones and backups of editors."""
    try:
        paths = sorted(directory.iterdir())
    except OSError:
        return
    yield from (path for path in paths if not path.name.startswith(".") and not path.name.endswith("~"))
