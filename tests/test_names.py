# SPDX-License-Identifier: Apache-2.0
"""Rules of the style guide for the names, the length and the comments of the modules of the product."""

from __future__ import annotations

import ast
import re
import statistics
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

from tests.support import removed

PRODUCT = Path(__file__).parents[1] / "nodeagent"
# Comments for tools, which explain nothing to a reader.
MARKS = re.compile(r"#\s*(noqa|type:|fmt:|pragma|SPDX-)")


def test_a_public_class_name_exists_once_but_for_the_pure_part_and_its_adapter() -> None:
    shared = (["core", "kube"], ["kube", "update"])
    folders: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(PRODUCT.rglob("*.py")):
        # The JSON form of a thing has the name of the thing, and is only read by what makes the schemas.
        if path.match("contract/*.py") or path.match("features/*/schema.py"):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                folders[node.name].append(path.relative_to(PRODUCT).parts[0])
    twice = {name: found for name, found in folders.items() if len(found) > 1 and found not in shared}
    assert twice == {}, "a reader who searches a name finds one class: name the new one after what it is for"


def test_a_variable_is_named_after_what_it_holds() -> None:
    said_little = {"found", "one", "why", "each", "known", "kept"}
    places = Counter(
        str(path.relative_to(PRODUCT))
        for path in PRODUCT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else "") in said_little
    )
    # Attributes with such a name are left, and the few places where nothing says more.
    assert places.total() < 100, (
        f"name a variable after what it holds, not {', '.join(sorted(said_little))} (docs/development/style.md); "
        f"most are in {places.most_common(5)}"
    )


def test_no_module_is_longer_than_a_reader_follows() -> None:
    lengths = {str(path.relative_to(PRODUCT)): path.read_bytes().count(b"\n") for path in PRODUCT.rglob("*.py")}
    long = {name: length for name, length in lengths.items() if length > 400}
    assert long == {}, "divide the module by its topics, at about 150 lines; do not squeeze its lines"


def test_modules_are_not_crumbs_and_have_comments() -> None:
    lengths, lines, comments = [], 0, 0
    for path in PRODUCT.rglob("*.py"):
        with path.open("rb") as file:
            tokens = list(tokenize.tokenize(file.readline))
        # What is declared has its words in docstrings and descriptions, and what a feature declares is short.
        if path.match("contract/*.py"):
            continue
        if path.match("features/*/*.py") and path.stem in ("door", "reasons", "schema", "settings", "__init__"):
            continue
        length = tokens[-1].start[0] - 1
        lines += length
        comments += sum(token.type == tokenize.COMMENT and not MARKS.match(token.string) for token in tokens)
        # The file that only marks a package has nothing to read.
        if any(not isinstance(node, ast.Expr) for node in ast.parse(path.read_bytes()).body):
            lengths.append(length)
    # The aim is 150 lines. The bound is what the tree has, and a step below it; features have small files for places.
    # Without a feature, it is that of another tree.
    if not removed.removed():
        assert statistics.median(lengths) >= 118, "too many small modules: put what is read together into one"
    assert comments / lines >= 0.05, "new code has fewer comments than the rest: write down why it does what it does"


def test_a_list_of_public_names_is_there_only_for_names_of_other_modules() -> None:
    # Nothing imports ``*``. For mypy, the list makes imported names public; what a module defines is public without it.
    found = set()
    for path in PRODUCT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names = set(ast.literal_eval(node.value))
                found |= set() if names & imported else {str(path.relative_to(PRODUCT))}
    assert found == set(), "remove __all__: what a module defines is public without it"
