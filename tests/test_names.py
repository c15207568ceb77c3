"""Rules of the style guide for the names of the product."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PRODUCT = Path(__file__).parents[1] / "nodeagent"


def test_a_public_class_name_exists_once_but_for_the_pure_part_and_its_adapter() -> None:
    folders: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(PRODUCT.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                folders[node.name].append(path.relative_to(PRODUCT).parts[0])
    assert {name: found for name, found in folders.items() if len(found) > 1 and found != ["core", "kube"]} == {}
