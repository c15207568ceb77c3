# SPDX-License-Identifier: Apache-2.0
"""Trees as images of bootc hosts, made by the real `ostree container encapsulate`, and repositories to install from.

    images = Encapsulated(ostree_repo, folder)           # of Flavour.BOOTC
    image = images.publish(ostree_repo.commit(A), "quay.io/example/os")
    OstreeHost(ostree_repo, images.pulled(image), read_only={parts.SERVED: images.folder})

Each image is an OCI layout in the cache, known by its commit. `folder` has the blobs of all images that were published,
by hard link, as `integration.hosts.ostree.small_registry` serves them.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from integration.hosts.container.image import Layer, digest, layer
from integration.hosts.ostree import small_registry
from integration.hosts.sources import code
from integration.trees.image_registry import Published, Pulled, make_repo
from integration.trees.ostree_container import OSTREE_CONTAINER
from integration.trees.ostree_repo import Commit, OstreeRepo
from integration.trees.toolbox import Toolbox

# A file of `ostree ls --checksum`: type and mode, owner, size, checksum, path.
LISTED = re.compile(r"^[-l]\S+ +\d+ +\d+ +\d+ +([0-9a-f]{64}) (\S+)", re.MULTILINE)
COMMON_LAYERS = 4  # of an image, with what all trees have
CREATED = "2026-11-01T00:00:00Z"  # of all images: equal commits are equal images
# With the settings that skopeo and the crate read in a host: the registry is here, and needs no signature.
PULL = """\
set -e
mkdir -p /etc/containers/registries.conf.d
printf '%s' "$1" >/etc/containers/registries.conf.d/tests.conf
exec "$2" container image pull --quiet "$3" "$4"
"""


class Encapsulated:
    """The images of one repository of trees. Safe to read for any number of hosts while another is published."""

    def __init__(self, ostree_repo: OstreeRepo, folder: Path) -> None:
        """`folder` is made where it is missing; it must be below the cache directory. Raises Unavailable."""
        self.folder = folder
        self._program = OSTREE_CONTAINER.find()
        self._ostree_repo = ostree_repo
        self._layouts: list[Layer] = []
        (folder / small_registry.BLOBS).mkdir(parents=True, exist_ok=True)

    def publish(self, commit: Commit, name: str) -> Published:
        """Make an image of a commit, or take the one that was made before."""
        key = digest(commit.checksum.encode(), code(__file__), self._program.parents[1].name.encode())
        layout = layer("oci", key, lambda path: self._encapsulate(commit, path))
        self._layouts.append(layout)
        for blob in (layout.path / small_registry.BLOBS).iterdir():
            served = self.folder / small_registry.BLOBS / blob.name
            if not served.exists():
                os.link(blob, served)
        (entry,) = json.loads((layout.path / "index.json").read_text())["manifests"]
        return Published(name, commit.version, entry["digest"], commit)

    def pulled(self, image: Published) -> Pulled:
        """Return the image in a repository, as the real program pulls it from a registry, made once."""
        reference = f"ostree-unverified-registry:{image.by_digest}"
        repo = self.folder / "pulled" / image.digest.removeprefix("sha256:")
        with self._ostree_repo.toolbox(self.folder, self._program.parent) as tools:
            if not (repo / "config").exists():
                repo.mkdir(parents=True)
                make_repo(tools, repo)
                with small_registry.serving(self.folder) as port:
                    registries = small_registry.registries_conf(image.name.partition("/")[0], port)
                    tools.run("sh", "-c", PULL, "sh", registries, str(self._program), str(repo), reference)
            merged = _only_ref(tools, repo, "ostree/container/image")
        return Pulled(repo, merged, f"[origin]\ncontainer-image-reference={reference}\n")

    def close(self) -> None:
        for layout in self._layouts:
            layout.lock.close()

    def _encapsulate(self, commit: Commit, layout: Path) -> None:
        layout.mkdir()
        repo = self._ostree_repo.repo
        with self._ostree_repo.toolbox(repo, layout, self._program.parent) as tools:
            content = layout / "content.json"
            plain = _objects(tools, repo, self._ostree_repo.plain)
            content.write_text(json.dumps(_layers(_objects(tools, repo, commit.checksum), plain)))
            options = (f"--repo={repo}", f"--contentmeta={content}", "--compression-fast")
            tools.run(str(self._program), "container", "encapsulate", *options, commit.checksum, f"oci:{layout}")
            content.unlink()


def _layers(objects: dict[str, str], plain: dict[str, str]) -> dict[str, object]:
    """Give each object, by checksum to path, a layer: an update pulls the one with the differences of its tree."""

    def layer_of(checksum: str, path: str) -> str:
        if checksum in plain:
            return f"common-{int(checksum[:2], 16) % COMMON_LAYERS}"
        return "nodeagent" if "nodeagent" in path else "release"

    mapping = {checksum: layer_of(checksum, path) for checksum, path in objects.items()}
    # The program panics at a layer without objects, and at an object without a layer.
    return {
        "version": 1,
        "created": CREATED,
        "layers": {name: name for name in sorted(set(mapping.values()))},
        "mapping": mapping,
    }


def _objects(tools: Toolbox, repo: Path, rev: str) -> dict[str, str]:
    listed = tools.said("ostree", f"--repo={repo}", "ls", "--recursive", "--checksum", rev)
    return dict(LISTED.findall(listed))


def _only_ref(tools: Toolbox, repo: Path, prefix: str) -> str:
    """Return the commit of the one ref below a prefix."""
    (ref,) = tools.said("ostree", f"--repo={repo}", "refs", "--list", prefix).splitlines()
    return tools.said("ostree", f"--repo={repo}", "rev-parse", ref)
