"""What the docs say holds: generated parts, links, paths of the tree, and command lines."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.cli.main import build_parser
from nodeagent.errors import InvalidInput

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
ROOMS = "nodeagent|systemd|packaging|integration|tests|docs"


def lines_of_code(text: str) -> Iterator[str]:
    """Indented and fenced blocks line by line, and everything in single backquotes."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for block in fenced:
        yield from block.splitlines()
    rest = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (line.strip() for line in rest.splitlines() if line.startswith("    "))
    yield from re.findall(r"`([^`\n]+)`", rest)


def commands(text: str) -> Iterator[str]:
    for line in lines_of_code(text):
        command = re.sub(r"^\$ ", "", line).split(" #")[0].strip()
        if re.match(r"nodeagent [a-z]", command) and not re.match(r"nodeagent \d", command):
            yield command


COMMANDS = sorted({(page.name, command) for page in PAGES for command in commands(page.read_text())})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        found = (page.parent / path) if path else page
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", found.read_text(), re.MULTILINE)
            # As code hosts make them: lower case, spaces to dashes, punctuation dropped.
            assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_of_the_tree_exist(page: Path) -> None:
    text = re.sub(r"https?://\S+", "", page.read_text())
    for path in re.findall(rf"(?<![\w/.~-])((?:{ROOMS})/[\w./-]*)", text):
        assert (ROOT / path.rstrip(".")).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_are_named_exist(page: Path) -> None:
    for path, name in re.findall(r"`([\w/]+\.py)::(\w+)`", page.read_text()):
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_command_lines_parse(page: str, command: str) -> None:
    words = [word for word in shlex.split(command.split("; ")[0])[1:] if word != "..."]
    try:
        build_parser().parse_args(words)
    except InvalidInput as error:
        # A command may be named without its arguments in a sentence, but not with wrong ones.
        assert "required" in str(error), f"{page}: {command}: {error}"


def test_there_are_command_lines() -> None:
    assert ("README.md", "nodeagent status") in COMMANDS
    assert any("plan --from" in command for _, command in COMMANDS)


def test_generated_parts_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    generate = runpy.run_path(str(ROOT / "docs/generate.py"))
    assert generate["main"](["--check"]) == 0, f"run: make docs ({capsys.readouterr().out.strip()})"


def test_no_page_is_left_alone() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in PAGES[1:]:
        assert f"({page.relative_to(ROOT)})" in readme
