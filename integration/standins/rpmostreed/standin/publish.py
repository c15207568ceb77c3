# SPDX-License-Identifier: Apache-2.0
"""Put an ostree commit into the registry folder as a container image.

    python3 -m integration.standins.rpmostreed.standin.publish --registry DIR --from REPO --commit REV \\
        --name quay.io/example/os --tag stable [--chunks 5] [--custom REV ...] \\
        [--user U --password P] [--signature good]

Prints the digest. The files of the commit are spread over `chunks` layers by their paths, so that two versions of
a system share the chunks in which nothing changed; the complete commit is one more layer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.standins.rpmostreed.standin.gir import Gio, GLib, OSTree


@dataclass(frozen=True, slots=True)
class _Found:
    path: str
    checksum: str
    size: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--registry", type=Path, required=True)
    parser.add_argument("--from", dest="source", type=Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--tag", action="append", default=[])
    parser.add_argument("--chunks", type=int, default=3)
    parser.add_argument("--custom", action="append", default=[])
    parser.add_argument("--user", default="")
    parser.add_argument("--password")
    parser.add_argument("--signature", choices=("good", "bad", "none"), default="none")
    arguments = parser.parse_args()
    print(publish(arguments))
    return 0


def publish(arguments: argparse.Namespace) -> str:
    repo = _open(arguments.registry / "repo")
    source = OSTree.Repo.new(Gio.File.new_for_path(str(arguments.source)))
    source.open(None)
    commit = _fetch(repo, source, arguments)
    layers = _chunks(repo, commit, arguments.chunks) if arguments.chunks else []
    layers.append(_layer(commit, _size(repo, commit), "ostree"))
    for revision in arguments.custom:
        checksum = source.resolve_rev(revision, False)[1]
        _pull(repo, arguments.source, checksum)
        layers.append(_layer(checksum, _size(repo, checksum), "custom"))
    _, variant, _ = repo.load_commit(commit)
    version = variant.get_child_value(0).lookup_value("version", GLib.VariantType("s"))
    digest = "sha256:" + hashlib.sha256(json.dumps(layers).encode()).hexdigest()
    entry = {
        "name": arguments.name,
        "tags": arguments.tag,
        "digest": digest,
        "version": "" if version is None else version.unpack(),
        "layers": layers,
        "signature": arguments.signature,
    }
    if arguments.password is not None:
        entry |= {"username": arguments.user, "password": arguments.password}
    images = arguments.registry / "images"
    images.mkdir(exist_ok=True)
    _take_tags(images, arguments.name, arguments.tag)
    file = images / f"{hashlib.sha256(arguments.name.encode()).hexdigest()[:8]}-{digest[7:19]}.json"
    file.write_text(json.dumps(entry, indent=1))
    return digest


def _open(path: Path) -> Any:
    path.mkdir(parents=True, exist_ok=True)
    repo = OSTree.Repo.new(Gio.File.new_for_path(str(path)))
    if not (path / "config").exists():
        # It is read on the same machine, where compression only costs time. From a bare one, libostree would link or
        # clone files and leave out what a real pull does.
        repo.create(OSTree.RepoMode.BARE_USER, None)
    repo.open(None)
    return repo


def _fetch(repo: Any, source: Any, arguments: argparse.Namespace) -> str:
    checksum = str(source.resolve_rev(arguments.commit, False)[1])
    _pull(repo, arguments.source, checksum)
    return checksum


def _pull(repo: Any, source: Path, checksum: str) -> None:
    options = GLib.Variant("a{sv}", {"refs": GLib.Variant("as", [checksum])})
    repo.pull_with_options(f"file://{source.resolve()}", options, None, None)


def _chunks(repo: Any, commit: str, count: int) -> list[dict[str, Any]]:
    _, root, _ = repo.read_commit(commit, None)
    pieces: list[list[_Found]] = [[] for _ in range(count)]
    for found in _files(root, ""):
        pieces[zlib.crc32(found.path.encode()) % count].append(found)
    layers = []
    for index, piece in enumerate(pieces):
        if not piece:
            continue
        tree = OSTree.MutableTree.new()
        for found in piece:
            _put(repo, root, tree, found)
        repo.prepare_transaction(None)
        _, written = repo.write_mtree(tree, None)
        # Time 0: the same pieces are the same commit, so that images share layers.
        _, checksum = repo.write_commit_with_time(None, f"chunk {index}", None, None, written, 0, None)
        repo.commit_transaction(None)
        layers.append(_layer(checksum, sum(found.size for found in piece), "ostree"))
    return layers


def _put(repo: Any, root: Any, tree: Any, found: _Found) -> None:
    directory, source = tree, root
    if directory.get_metadata_checksum() is None:
        directory.set_metadata_checksum(root.tree_get_metadata_checksum())
    *parents, name = found.path.split("/")
    for part in parents:
        source = source.get_child(part)
        source.ensure_resolved()
        _, directory = directory.ensure_dir(part)
        if directory.get_metadata_checksum() is None:
            directory.set_metadata_checksum(source.tree_get_metadata_checksum())
    directory.replace_file(name, found.checksum)


def _files(directory: Any, prefix: str) -> list[_Found]:
    directory.ensure_resolved()
    found = []
    flags = Gio.FileQueryInfoFlags.NOFOLLOW_SYMLINKS
    for entry in directory.enumerate_children("standard::name,standard::type,standard::size", flags, None):
        name = str(entry.get_name())
        child = directory.get_child(name)
        if entry.get_file_type() == Gio.FileType.DIRECTORY:
            found += _files(child, f"{prefix}{name}/")
        else:
            found.append(_Found(prefix + name, str(child.get_checksum()), int(entry.get_size())))
    return found


def _size(repo: Any, commit: str) -> int:
    _, root, _ = repo.read_commit(commit, None)
    return sum(found.size for found in _files(root, ""))


def _layer(commit: str, size: int, kind: str) -> dict[str, Any]:
    digest = hashlib.sha256(commit.encode()).hexdigest()
    return {"digest": f"sha256:{digest}", "commit": commit, "size": size, "kind": kind}


def _take_tags(images: Path, name: str, tags: list[str]) -> None:
    """A tag points to one image only; the older one stays reachable by its digest."""
    for path in images.glob("*.json"):
        entry = json.loads(path.read_text())
        if entry["name"] == name and set(entry["tags"]) & set(tags):
            entry["tags"] = [tag for tag in entry["tags"] if tag not in tags]
            path.write_text(json.dumps(entry, indent=1))


if __name__ == "__main__":
    sys.exit(main())
