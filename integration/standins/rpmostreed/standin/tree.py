# SPDX-License-Identifier: Apache-2.0
"""Trees made of other trees inside a repo, without checking anything out."""

from __future__ import annotations

from typing import Any

from integration.standins.rpmostreed.standin.gir import Gio, GLib, OSTree

WHITEOUT = ".wh."


def merge_tree(repo: Any, base: str, overlays: list[str]) -> Any:
    """A mutable tree: `base` with each overlay commit over it. A file `.wh.NAME` in an overlay removes NAME."""
    tree = OSTree.MutableTree.new_from_commit(repo, base)
    for commit in overlays:
        _, root, _ = repo.read_commit(commit, None)
        _lay_over(repo, tree, root)
    return tree


def _lay_over(repo: Any, tree: Any, directory: Any) -> None:
    directory.ensure_resolved()
    if tree.get_metadata_checksum() is None:
        tree.set_metadata_checksum(directory.tree_get_metadata_checksum())
    children = directory.enumerate_children("standard::name,standard::type", Gio.FileQueryInfoFlags.NOFOLLOW_SYMLINKS)
    for entry in children:
        name = entry.get_name()
        child = directory.get_child(name)
        if name.startswith(WHITEOUT):
            tree.remove(name.removeprefix(WHITEOUT), True)
        elif entry.get_file_type() == Gio.FileType.DIRECTORY:
            _, below = tree.ensure_dir(name)
            _lay_over(repo, below, child)
        else:
            tree.replace_file(name, child.get_checksum())


def add_files(repo: Any, tree: Any, path: str, names: list[str], cancellable: Any) -> None:
    """Empty files `names` in directory `path` of the tree, owned by root."""
    directory = tree
    for part in path.split("/"):
        _, directory = directory.ensure_dir(part)
        if directory.get_metadata_checksum() is None:
            directory.set_metadata_checksum(_directory_metadata(repo, cancellable))
    for name in names:
        checksum = repo.write_regfile_inline(None, 0, 0, 0o100644, None, f"{name}\n".encode(), cancellable)
        directory.replace_file(name, checksum)


def _directory_metadata(repo: Any, cancellable: Any) -> str:
    info = Gio.FileInfo.new()
    info.set_attribute_uint32("unix::uid", 0)
    info.set_attribute_uint32("unix::gid", 0)
    info.set_attribute_uint32("unix::mode", 0o040755)
    metadata = OSTree.create_directory_metadata(info, GLib.Variant("a(ayay)", []))
    _, checksum = repo.write_metadata(OSTree.ObjectType.DIR_META, None, metadata, cancellable)
    return "".join(f"{byte:02x}" for byte in checksum)
