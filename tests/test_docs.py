# SPDX-License-Identifier: Apache-2.0
"""The docs are true and complete: generated parts, links, paths of the tree, command lines, and the site's index."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nodeagent.cli.main import build_parser
from nodeagent.errors import InvalidInput
from nodeagent.reasons import known_reasons
from nodeagent.settings.schema import keys
from tests.support import removed

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP), *sorted(DOCS.rglob("*.md"))]
TREE = "nodeagent|systemd|packaging|integration|tests|docs"


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
        command = re.sub(r"^\$ ", "", line).split(" #")[0].split(" | ")[0].strip()
        if re.match(r"nodeagent [a-z]", command) and not re.match(r"nodeagent \d", command):
            yield command


COMMANDS = sorted({(str(page.relative_to(ROOT)), command) for page in PAGES for command in commands(page.read_text())})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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
            places = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in places | {reason.lower() for reason in removed.words("reason")}, target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_of_the_tree_exist(page: Path) -> None:
    text = re.sub(r"https?://\S+|nodeagent/[\w-]+/v\d", "", page.read_text())  # addresses and schemas
    for path in re.findall(rf"(?<![\w/.~-])((?:{TREE})/[\w./-]*)", text):
        assert (ROOT / path.rstrip(".")).exists() or removed.is_path(path), path


def templates() -> Iterator[re.Pattern[str]]:
    """Yield patterns of the texts that the program may print: its hints, with what it puts into them left open."""
    for path in (ROOT / "nodeagent").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
                text = "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            words = re.split(r"\{[\w.!:]*\}", text)
            if len("".join(words)) >= 20 and "\n" not in text:
                yield re.compile(".*".join(map(re.escape, words)))


@pytest.mark.finding("docs: outputs that are shown", "A hint that a page shows is one that the program prints.")
def test_hints_that_are_shown_are_those_of_the_program() -> None:
    shown = [
        (page.name, text)
        for page in PAGES
        for line in lines_of_code(page.read_text())
        for text in re.findall(r"(?:what now +|^hint: )(\S.*)", line)
        if not text.startswith("did you mean ")
    ]
    assert len(shown) > 5
    known = list(templates())
    # A page may wrap a long one.
    wrapped = {text for _, text in shown if any(text in reason.hint for reason in known_reasons())}
    odd = [(page, text) for page, text in shown if text not in wrapped and not any(e.search(text) for e in known)]
    # Those of a removed feature are not known.
    assert odd == [] or removed.removed(), odd


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_are_named_exist(page: Path) -> None:
    for path, name in re.findall(r"`([\w/]+\.py)::(\w+)`", page.read_text()):
        if not removed.is_path(path):
            assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_command_lines_parse(page: str, command: str) -> None:
    words = [word for word in shlex.split(command.split("; ")[0])[1:] if word != "..."]
    try:
        build_parser().parse_args(words)
    except InvalidInput as error:
        # A command may be named without its arguments in a sentence, but not with wrong ones.
        missing = "required" in str(error) or "needs a command" in str(error)
        assert missing or removed.is_command(command), f"{page}: {command}: {error}"


def test_there_are_command_lines() -> None:
    assert ("docs/usage/on-call.md", "nodeagent status") in COMMANDS
    assert any("plan --from" in command for _, command in COMMANDS)


def test_generated_parts_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    generate = runpy.run_path(str(ROOT / "docs/generate.py"))
    assert generate["main"](["--check"]) == 0, f"run: make docs ({capsys.readouterr().out.strip()})"


def listed(nav: object) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case list():
            for entry in nav:
                yield from listed(entry)
        case dict():
            for entry in nav.values():
                yield from listed(entry)


def test_each_page_is_in_the_site() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    pages = [str(page.relative_to(DOCS)) for page in PAGES[len(TOP) :]]
    assert sorted(listed(nav)) == pages, "each page has a line in nav of mkdocs.yml"


@pytest.mark.parametrize("section", ["usage", "reference", "explanation", "development", "research"])
def test_the_index_of_each_section_lists_its_pages(section: str) -> None:
    index = (DOCS / section / "index.md").read_text()
    for page in (DOCS / section).glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, f"link {page.name} in {section}/index.md"


@pytest.mark.parametrize("section", ["usage", "reference", "explanation"])
def test_pages_for_admins_name_no_source_files(section: str) -> None:
    for page in [DOCS / "index.md", DOCS / "tutorial.md", *(DOCS / section).glob("*.md")]:
        assert not re.findall(r"\b(?:nodeagent|integration|tests)/[\w/]+\.py", page.read_text()), page


@pytest.mark.parametrize("page", sorted((DOCS / "usage").glob("*.md")), ids=lambda page: page.name)
def test_a_how_to_page_fits_on_a_screen(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 70, (
        "a how-to page is one task: move explanations to docs/explanation, tables to docs/reference, a second task to "
        "a page of its own"
    )


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_is_wrapped(page: Path) -> None:
    text = re.sub(r"<!-- begin .*?<!-- end", "", page.read_text(), flags=re.DOTALL)
    long = [line for line in text.splitlines() if len(line) > 100 and not line.startswith(("|", " ", "!["))]
    assert not long, "wrap prose at 100 columns"


# The pages about research also name settings of the past.
CURRENT = [page for page in PAGES if page.parent.name != "research"]


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_that_are_named_exist(page: Path) -> None:
    sections = "|".join({key.partition(".")[0] for key in keys() if "." in key})
    named = set(re.findall(rf"`((?:{sections})\.[a-z_]+)(?=[:`])", page.read_text()))
    # Keys of JSON have dots as well, within what has the name of a section.
    if page.name == "json.md":
        named -= set(re.findall(r"^\| `([^`]+)` \|", page.read_text(), re.MULTILINE))
    # The name of a unit, and that of a check of selfcheck.
    assert named - set(keys()) - removed.words("setting") <= {"etcd.service", "os.fields"}
