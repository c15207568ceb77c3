# SPDX-License-Identifier: Apache-2.0
"""A container registry for the stand-in of rpm-ostreed, with trees as images: a folder that a host sees.

The folder's format and the program that writes it are the stand-in's
(`integration.standins.rpmostreed.standin.publish`). Its
repository takes the objects from the trees' by hard link, so it has to be in the same cache directory, and it is
complete: it can be copied to another machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from integration.hosts.container.image import cache_directory
from integration.trees.ostree_repo import Commit, OstreeRepo
from integration.trees.toolbox import Toolbox

SOURCES = Path(__file__).parents[2]
PYTHON = ("env", f"PYTHONPATH={SOURCES}", "PYTHONDONTWRITEBYTECODE=1", "python3", "-m")
PUBLISH = (*PYTHON, "integration.standins.rpmostreed.standin.publish")
PULL = (*PYTHON, "integration.trees.pull_image")
CHUNKS = 4  # layers of an image, and one more


@dataclass(frozen=True, slots=True)
class Published:
    name: str
    tag: str
    digest: str
    commit: Commit

    @property
    def by_digest(self) -> str:
        """Return the reference as an osImageURL has it."""
        return f"{self.name}@{self.digest}"


@dataclass(frozen=True, slots=True)
class Pulled:
    """An image in a repository that holds nothing else, to install a host from."""

    repo: Path
    checksum: str  # of the commit that its layers were merged to
    origin: str  # the content of a deployment's origin file


class Registry:
    """Safe to read for any number of hosts while something is published."""

    def __init__(self, folder: Path, ostree_repo: OstreeRepo) -> None:
        """`folder` is made where it is missing. It must be below the cache directory."""
        self.folder = folder
        self._ostree_repo = ostree_repo
        (folder / "images").mkdir(parents=True, exist_ok=True)
        repo = folder / "repo"
        if not (repo / "config").exists():
            with ostree_repo.toolbox(folder) as tools:
                make_repo(tools, repo)

    def publish(self, commit: Commit, name: str, tag: str, *options: str, chunks: int = CHUNKS) -> Published:
        """Make an image of a commit and give it a tag, which it takes from any other image of that name.

        `options` are of the publishing program: `--user`, `--password`, `--signature`, `--custom`.
        """
        with self._ostree_repo.toolbox(cache_directory(), SOURCES) as tools:
            digest = tools.said(
                *(
                    *PUBLISH,
                    f"--registry={self.folder}",
                    f"--from={self._ostree_repo.repo}",
                    f"--commit={commit.checksum}",
                ),
                *(f"--name={name}", f"--tag={tag}", f"--chunks={chunks}", *options),
            )
        return Published(name, tag, digest, commit)

    def pulled(self, image: Published) -> Pulled:
        """The image as the stand-in pulls it, made once."""
        reference = f"ostree-unverified-registry:{image.by_digest}"
        repo = self.folder / "pulled" / image.digest.removeprefix("sha256:")
        with self._ostree_repo.toolbox(cache_directory(), SOURCES) as tools:
            if not (repo / "config").exists():
                repo.mkdir(parents=True)
                make_repo(tools, repo)
            checksum = tools.said(*PULL, str(self.folder), str(repo), reference)
        return Pulled(repo, checksum, f"[origin]\ncontainer-image-reference={reference}\n")


def make_repo(tools: Toolbox, repo: Path) -> None:
    """Make a repository of a host in an empty directory."""
    tools.run("ostree", "init", f"--repo={repo}", "--mode=bare")
    tools.run("ostree", "config", f"--repo={repo}", "set", "core.fsync", "false")
