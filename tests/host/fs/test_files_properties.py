# SPDX-License-Identifier: Apache-2.0
"""Laws: what was captured comes back as it was, for any node and any sequence of writes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile, SymbolicLink
from nodeagent.host.fs.files import DiskFiles
from nodeagent.host.fs.selinux import Labels
from tests.support.disk import needs_root, temps, tree

pytestmark = needs_root

users = groups = st.sampled_from([0, 1, 1000, 65533])
files = st.builds(RegularFile, st.binary(max_size=200), st.integers(0, 0o7777), users, groups)
targets = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)
links = st.builds(SymbolicLink, targets, users, groups)
nodes: st.SearchStrategy[FileTreeEntry] = files | links
PATHS = ["/x", "/etc/a", "/etc/b", "/etc/d/a", "/etc/d/b", "/etc/d/e/f/a", "/var/lib/a", "/var/b", "/new/deep/er/a"]
trees = st.dictionaries(st.sampled_from(PATHS), nodes)


@contextmanager
def a_disk() -> Iterator[tuple[DiskFiles, Path]]:
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as root:
        yield DiskFiles(root, labels=Labels(enabled=False)), Path(root)


def bare(node: FileTreeEntry | None) -> FileTreeEntry | None:
    """Drop the facts about the parent directory, which belong to another path."""
    return replace(node, dir_mode=0o755, dir_owner=0) if isinstance(node, RegularFile) else node


@given(nodes, nodes)
def test_capture_after_install_is_the_node_and_the_other_way_round(first: FileTreeEntry, second: FileTreeEntry) -> None:
    with a_disk() as (disk, root):
        disk.install("/a/x", first)
        kept, before = disk.capture("/a/x"), tree(root)
        assert bare(kept) == first
        assert kept is not None
        disk.install("/a/x", second)
        assert disk.differs("/a/x", second) == ""
        assert bool(disk.differs("/a/x", first)) == (first != second)
        disk.install("/a/x", kept)
        assert tree(root) == before


def apply(disk: DiskFiles, old: Mapping[str, FileTreeEntry], new: Mapping[str, FileTreeEntry], made: set[str]) -> None:
    for path in sorted({*old, *new}):
        if path in new:
            made.update(disk.missing_dirs([path]))
            disk.install(path, new[path])
        else:
            disk.remove(path, sorted(made))


@settings(max_examples=150)
@given(theirs=trees, first=trees, second=trees)
def test_from_one_tree_to_another_and_back(
    theirs: dict[str, FileTreeEntry], first: dict[str, FileTreeEntry], second: dict[str, FileTreeEntry]
) -> None:
    with a_disk() as (disk, root):
        theirs = {path: node for path, node in theirs.items() if path not in first}
        for path, node in theirs.items():
            disk.install(path, node)
        made: set[str] = set()
        apply(disk, {}, first, made)
        before = tree(root)

        # What an update does: remember, write, and on a failure put everything back in reverse.
        kept = {path: disk.capture(path) for path in sorted({*first, *second})}
        apply(disk, first, second, made)
        for path in second:
            assert disk.differs(path, second[path]) == ""
        for path, node in reversed(kept.items()):
            if node is None:
                disk.remove(path, sorted(made))
            else:
                disk.install(path, node)
        assert tree(root) == before
        assert temps(root) == []
