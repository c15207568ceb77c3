# SPDX-License-Identifier: Apache-2.0
"""The list of what is bundled is a CycloneDX document."""

from __future__ import annotations

import copy
import importlib
import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.support.cyclonedx import violations

PACKAGING = Path(__file__).parents[2] / "packaging"
# Packages of the environment that are in the package as well.
PACKAGES = ("aiohttp", "attrs", "dbus-next", "kubernetes", "msgspec", "psutil", "pyudev", "PyYAML", "structlog", "yarl")

Document = dict[str, Any]


@pytest.fixture
def document(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Document:
    monkeypatch.syspath_prepend(PACKAGING)
    components = importlib.import_module("bundle.components")
    part = importlib.import_module("bundle.origins.base").Part(
        "openssl", "3.5.5", "pkg:deb/openssl@3.5.5", ("ab" * 32,)
    )
    found = [components._library(name, "3.5.5", licence, part) for name, licence in components.LIBRARIES[1:2]]
    found += [components._library("libffi", "", "MIT", None)]
    found += [components.package(metadata.distribution(name)) for name in PACKAGES]
    components.write_sbom(sorted(found), "1.0", "source", tmp_path / "sbom")
    return dict(json.loads((tmp_path / "sbom").read_text()))


def of(document: Document) -> list[str]:
    return violations(json.dumps(document).encode())


def test_the_list_is_what_the_standard_demands(document: Document) -> None:
    assert of(document) == []
    assert document["metadata"]["component"]["type"] == "application"
    assert len(document["components"]) == len(PACKAGES) + 2


def _of(document: Document, name: str) -> Document:
    return next(each for each in document["components"] if each["name"] == name)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda document: document.update(specVersion="2.0"), "specVersion"),
        (lambda document: document.update(serialNumber="5"), "serialNumber"),
        (lambda document: document["components"].append(document["components"][0]), "occurs twice"),
        (lambda document: document["components"].pop(0), "must have its dependencies"),
        (lambda document: _of(document, "attrs").pop("licenses"), "licenses"),
        (
            lambda document: _of(document, "attrs").update(licenses=[{"expression": "MIT License"}]),
            "expression of SPDX",
        ),
        (lambda document: _of(document, "attrs").update(version="0"), "not that of its purl"),
        (lambda document: _of(document, "attrs").update(type="wheel"), "type"),
        (lambda document: _of(document, "openssl").update(cpe="cpe:/a:openssl"), "cpe"),
        (
            lambda document: _of(document, "openssl")["externalReferences"][0]["hashes"][0].update(content="x"),
            "content",
        ),
        (lambda document: document["dependencies"][0]["dependsOn"].append("pkg:pypi/x@1"), "no component"),
    ],
)
def test_what_the_check_finds(document: Document, wrong: Callable[[Document], object], words: str) -> None:
    damaged = copy.deepcopy(document)
    wrong(damaged)
    assert words in "; ".join(of(damaged))
