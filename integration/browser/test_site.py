# SPDX-License-Identifier: Apache-2.0
"""The copy of the site on disk, in Chromium: its search works, and how-to pages are found before development pages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from integration.browser.browser import Page

ROOT = Path(__file__).parents[2]

pytestmark = [
    # A browser, and an environment with mkdocs, are fetched once.
    pytest.mark.long,
    pytest.mark.finding("users: search of the site", "The search works in a copy on disk, and has how-to pages first."),
]

SEARCH = """
const box = document.querySelector("input[data-md-component=search-query]");
document.querySelector("label[for=__search]").click();
box.value = arguments[0];
box.focus();
box.dispatchEvent(new Event("keyup", {bubbles: true}));
box.dispatchEvent(new Event("input", {bubbles: true}));
"""
FOUND = """
const found = [...document.querySelectorAll("a.md-search-result__link")].map(a => new URL(a.href).pathname);
return found.length ? [...new Set(found)] : null;
"""
FOLDER = "/tmp/site/"


@pytest.fixture(scope="module")
def site(browser_tab: Page, tmp_path_factory: pytest.TempPathFactory) -> Page:
    venv = "build/docs-venv"
    subprocess.run(["make", f"{venv}/.stamp"], cwd=ROOT, check=True, timeout=300)
    target = tmp_path_factory.mktemp("docs") / "site"
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    build = [f"{venv}/bin/mkdocs", "build", "--quiet", "--strict", "--site-dir", str(target)]
    subprocess.run(build, cwd=ROOT, check=True, timeout=300, env=environment)
    browser_tab.add(target, FOLDER)
    browser_tab.look(1280)
    return browser_tab


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("rollback", "usage/undo.html"),
        ("why did it reboot", "usage/why-a-reboot.html"),
        ("will this change reboot", "usage/preview.html"),
        ("chrony", "usage/avoid-a-reboot.html"),
        ("install without network", "usage/install-offline.html"),
        ("webhook", "usage/hooks.html"),
        ("bootc", "usage/bootc.html"),
        ("merge fragments", "usage/merge.html"),
        ("accept disks", "usage/accept-sections.html"),
        ("directories links users", "reference/config.html"),
        ("write first config butane", "usage/write-a-config.html"),
    ],
)
def test_what_a_search_finds_first(site: Page, words: str, page: str) -> None:
    site.go(f"file://{FOLDER}index.html")
    site.run(SEARCH, words)
    found = [path.removeprefix(FOLDER) for path in site.wait(FOUND, f"results for {words}")]
    assert page in found[:5]
    others = [path for path in found if not path.startswith(("development/", "research/"))]
    assert found[: min(5, len(others))] == others[:5], "pages about development come last"


def test_no_page_loads_anything_from_another_host(site: Page) -> None:
    loads = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    site.go(f"file://{FOLDER}usage/undo.html")
    assert [name for name in site.run(loads) if not name.startswith("file:")] == []
