# SPDX-License-Identifier: Apache-2.0
"""Trees are what they declare, and made once."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.hosts.process import run
from integration.trees.image_registry import Registry
from integration.trees.ostree_repo import Commit, OstreeRepo
from integration.trees.toolbox import Toolbox, throwaway
from integration.trees.tree import BAD, CONTENT, DEFAULTS, A, B, Part, Tree

Repo = Callable[..., str]


@pytest.fixture(scope="module")
def repo(ostree_repo: OstreeRepo) -> Iterator[Repo]:
    """Runs an ostree command on the repository of the trees."""
    ostree_repo.commit(A)
    with ostree_repo.toolbox(ostree_repo.repo) as tools:
        yield lambda *argv: tools.said("ostree", f"--repo={ostree_repo.repo}", *argv)


def test_equal_trees_are_one_commit(ostree_repo: OstreeRepo) -> None:
    first = ostree_repo.commit(A)
    assert ostree_repo.commit(Tree(A.version, dict(A.files), dict(A.units))) == first
    assert len({ostree_repo.commit(tree).checksum for tree in (A, B, BAD)}) == 3


def test_the_layout_is_that_of_coreos(ostree_repo: OstreeRepo, repo: Repo) -> None:
    listed = repo("ls", ostree_repo.commit(A).checksum)
    for link in ("/home -> var/home", "/root -> var/roothome", "/ostree -> sysroot/ostree", "/opt -> var/opt"):
        assert link in listed
    assert " /etc" not in listed
    assert repo("ls", ostree_repo.commit(A).checksum, "/var").splitlines()[1:] == []
    assert repo("ls", ostree_repo.commit(A).checksum, "/boot").splitlines()[1:] == []
    assert "/usr/etc/passwd" in repo("ls", ostree_repo.commit(A).checksum, "/usr/etc")
    kernels = repo("ls", "-R", ostree_repo.commit(A).checksum, "/usr/lib/modules")
    assert "/vmlinuz" in kernels
    assert "/initramfs.img" in kernels
    assert repo("show", "--print-metadata-key=version", ostree_repo.commit(A).checksum) == f"'{A.version}'"
    assert "d /var/home/core 0700 core core -" in repo(
        "cat", ostree_repo.commit(A).checksum, "/usr/lib/tmpfiles.d/00-autovar.conf"
    )


def test_a_version_differs_in_what_it_declares_only(ostree_repo: OstreeRepo, repo: Repo) -> None:
    changed = repo("diff", ostree_repo.commit(A).checksum, ostree_repo.commit(B).checksum).splitlines()
    assert sorted(line.split(maxsplit=1)[1] for line in changed) == [
        f"/usr/etc{DEFAULTS.removeprefix('/etc')}",
        "/usr/etc/systemd/system/multi-user.target.wants/release-b.service",
        "/usr/lib/modules/6.0.0-placeholder/initramfs.img",
        "/usr/lib/modules/6.0.0-placeholder/vmlinuz",
        "/usr/lib/os-release",
        "/usr/lib/systemd/system/release-b.service",
        CONTENT,
        "/usr/share/release/only-b",
    ]


def test_a_part_may_change_add_and_remove(ostree_repo: OstreeRepo, repo: Repo) -> None:
    def install(root: Path) -> None:
        (root / "usr/bin/added").write_text("#!/bin/sh\n")
        (root / "usr/bin/added").chmod(0o4755)
        (root / "etc/added").symlink_to("passwd")
        (root / "usr/bin/tac").unlink()
        run(["chroot", str(root), "useradd", "--system", "--uid=890", "part"], timeout=30)
        (root / "var/lib").mkdir(exist_ok=True)
        (root / "var/lib/part").mkdir(mode=0o750)

    made = ostree_repo.commit(Tree("part", parts=(Part("part", secrets.token_bytes(8), install),)))
    assert "-04755 0 0" in repo("ls", made.checksum, "/usr/bin/added")
    assert "/usr/etc/added -> passwd" in repo("ls", made.checksum, "/usr/etc/added")
    assert "part:x:890" in repo("cat", made.checksum, "/usr/etc/passwd")
    assert "/usr/bin/tac" not in repo("ls", made.checksum, "/usr/bin")
    lines = repo("cat", made.checksum, "/usr/lib/tmpfiles.d/01-autovar-added.conf").splitlines()
    assert lines == ["d /var/lib/part 0750 root root -"]
    changed = {
        line.split(maxsplit=1)[1] for line in repo("diff", ostree_repo.commit(A).checksum, made.checksum).splitlines()
    }
    assert "/usr/bin/ls" not in changed


def test_the_same_by_a_delta_and_as_a_whole(
    ostree_repo: OstreeRepo, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(root: Path) -> None:
        (root / "usr/bin/added").mkdir(mode=0o750)
        (root / "usr/bin/added/file").write_text("x")

    def tree() -> Tree:
        return Tree("delta", A.files, A.units, parts=(Part("part", secrets.token_bytes(8), install),))

    delta = ostree_repo.commit(tree())
    monkeypatch.setattr("integration.trees.delta.extract", lambda *_: False)
    assert repo("diff", delta.checksum, ostree_repo.commit(tree()).checksum) == ""


def test_an_image_has_layers_and_tags(ostree_repo: OstreeRepo) -> None:
    with throwaway("registry") as directory:
        folder = directory / "images"
        registry = Registry(folder, ostree_repo)
        a, b = (registry.publish(ostree_repo.commit(tree), "quay.io/example/os", "latest") for tree in (A, B))
        assert a.digest != b.digest
        assert a.by_digest == f"quay.io/example/os@{a.digest}"
        texts = {digest: _image(folder, digest) for digest in (a.digest, b.digest)}
        assert '"latest"' not in texts[a.digest]
        assert '"latest"' in texts[b.digest]
        assert texts[b.digest].count('"kind": "ostree"') == 5
        with ostree_repo.toolbox(folder) as tools:
            assert _has(tools, folder, a.commit)
            assert _has(tools, folder, b.commit)


def _image(folder: Path, digest: str) -> str:
    (text,) = [text for path in (folder / "images").iterdir() if digest in (text := path.read_text())]
    return text


def _has(tools: Toolbox, folder: Path, commit: Commit) -> bool:
    return tools.run("ostree", f"--repo={folder / 'repo'}", "show", commit.checksum, check=False).returncode == 0


def test_nothing_is_left_of_a_tree_that_cannot_be_made(ostree_repo: OstreeRepo) -> None:
    roots: list[Path] = []

    def install(root: Path) -> None:
        roots.append(root)
        raise ValueError("as asked")

    with pytest.raises(ValueError, match="as asked"):
        ostree_repo.commit(Tree("fails", parts=(Part("fails", b"", install),)))
    assert not roots[0].parent.exists()
    assert str(roots[0]) not in Path("/proc/self/mountinfo").read_text()
