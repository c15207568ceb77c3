# SPDX-License-Identifier: Apache-2.0
"""Reading an image: the directory of a deployment, and a commit through a program that answers as ostree does."""

from __future__ import annotations

import asyncio
import platform
from pathlib import Path

import pytest

from nodeagent.errors import AgentError
from nodeagent.features.bootc.decide.kargs import KARGS, MAX_FILES, ImageArguments
from nodeagent.features.bootc.image import BOUND, CommitReader, ImageFacts, arguments_of_tree

pytestmark = pytest.mark.usefixtures("no_leaked_fds")

# `ls` and `cat` of ostree 2025.2 on a directory of commits, with their texts for what is missing.
OSTREE = """\
#!/bin/sh
repo=${1#--repo=}; verb=$2; shift 2
case $verb in
ls) shift; tree=$repo/$1
    [ -d "$tree$2" ] || { echo "error: No such file or directory: $2" >&2; exit 1; }
    printf '%s\\0' "$2"
    for path in "$tree$2"/*; do [ -e "$path" ] || [ -L "$path" ] && printf '%s\\0' "${path#$tree}"; done; exit 0;;
cat) exec cat "$repo/$1$2";;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "repo/commit"
    (tree / "usr/lib/modules").mkdir(parents=True)
    return tree


@pytest.fixture
def reader(tmp_path: Path) -> CommitReader:
    program = tmp_path / "ostree"
    program.write_text(OSTREE)
    program.chmod(0o755)
    return CommitReader(tmp_path / "repo", str(program))


def add(tree: Path, name: str, content: str = "") -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def of(*tokens: str) -> ImageArguments:
    return ImageArguments(tokens, present=True)


async def both(tree: Path, reader: CommitReader) -> ImageFacts:
    facts = await reader.facts("commit")
    assert await asyncio.to_thread(arguments_of_tree, tree) == facts.arguments
    return facts


async def test_an_image_without_any_of_it(tree: Path, reader: CommitReader) -> None:
    assert await both(tree, reader) == ImageFacts()
    (tree / "usr/lib/bootc/install").mkdir(parents=True)
    assert await both(tree, reader) == ImageFacts()


async def test_the_arguments_and_the_bound_images(tree: Path, reader: CommitReader) -> None:
    (tree / KARGS).mkdir(parents=True)
    assert await both(tree, reader) == ImageFacts(of())
    add(
        tree,
        f"{KARGS}/10-a.toml",
        f'# A comment\nkargs = [\n  "a=1",\n  "b",\n]\nmatch-architectures = ["{platform.machine()}"]\n',
    )
    add(tree, f"{KARGS}/20 b.toml", 'kargs = ["c"]\r\n')
    add(tree, f"{KARGS}/README", "not read")
    (tree / BOUND).mkdir()
    assert await both(tree, reader) == ImageFacts(of("a=1", "b", "c"))
    (tree / BOUND / "app.container").symlink_to("/usr/share/containers/systemd/app.container")
    assert await both(tree, reader) == ImageFacts(of("a=1", "b", "c"), ("app.container",))


@pytest.mark.parametrize("content", ["kargs = [", "other = 1"])
async def test_arguments_that_cannot_be_used(tree: Path, reader: CommitReader, content: str) -> None:
    add(tree, f"{KARGS}/a.toml", content)
    with pytest.raises(AgentError, match=r"a\.toml") as refused:
        await reader.facts("commit")
    assert refused.value.reason == "ImageBroken"
    assert await asyncio.to_thread(arguments_of_tree, tree) == of(), "no argument of the host came from such a file"


async def test_too_many_files(tree: Path, reader: CommitReader) -> None:
    for number in range(MAX_FILES + 1):
        add(tree, f"{KARGS}/{number}.toml", "kargs = []")
    with pytest.raises(AgentError, match="more than") as refused:
        await reader.facts("commit")
    assert refused.value.reason == "ImageBroken"
    assert await asyncio.to_thread(arguments_of_tree, tree) == of()


def test_links_lead_nowhere(tree: Path, tmp_path: Path) -> None:
    add(tmp_path, "other.toml", 'kargs = ["a"]')
    (tree / KARGS).mkdir(parents=True)
    (tree / KARGS / "a.toml").symlink_to(tmp_path / "other.toml")
    assert arguments_of_tree(tree) == of()


async def test_a_commit_that_cannot_be_read(tree: Path, reader: CommitReader, tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="No such file") as failed:
        await reader.facts("another")
    assert failed.value.reason == "StageFailed"
    add(tree, f"{KARGS}/a.toml")
    (tree / KARGS / "a.toml").unlink()
    (tree / KARGS / "a.toml").mkdir()
    with pytest.raises(AgentError) as failed:
        await reader.facts("commit")
    assert failed.value.reason == "StageFailed"
    with pytest.raises(AgentError) as failed:
        await CommitReader(tmp_path, str(tmp_path / "none")).facts("commit")
    assert failed.value.reason == "StageFailed"
