# SPDX-License-Identifier: Apache-2.0
"""The page of an update in Chromium: at desk and phone width, light and dark, and printed."""

from __future__ import annotations

import re

import pytest

from integration.browser.browser import Page
from nodeagent.features.page.view.page import page
from nodeagent.features.page.view.timeline import MeasuredReboot
from tests.features.page.samples import an_os, hashes, hostile, restarts

# They need a browser that is fetched once, and `make test` has six minutes.
pytestmark = pytest.mark.long

PAGES = {
    "os": page(an_os(), host="worker-7.example", version="0.1.0"),
    "hashes": page(hashes(), host="worker-7.example", version="0.1.0"),
    "restarts": page(restarts(), host="worker-7.example", version="0.1.0", other=MeasuredReboot(48.9, "b")),
    "hostile": page(hostile(), host="<script>", version="<b>"),
}
LOOKS = [(1280, False), (1280, True), (390, False), (390, True)]

# Texts of a drawing that are shown and extend beyond it, or that cover another one.
FAULTS = """
const shown = [...document.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().width > 0);
const found = [];
for (const svg of shown) {
  const frame = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
  for (const [words, box] of boxes)
    if (box.left < frame.left - 1 || box.right > frame.right + 1) found.push(`${words} leaves the drawing`);
  for (let i = 0; i < boxes.length; i++)
    for (let j = i + 1; j < boxes.length; j++) {
      const [a, b] = [boxes[i][1], boxes[j][1]];
      const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (x > 1 && y > 6) found.push(`${boxes[i][0]} covers ${boxes[j][0]}`);
    }
}
return found;
"""


@pytest.mark.parametrize(("width", "dark"), LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_each_look(tab: Page, name: str, width: int, dark: bool) -> None:
    tab.look(width, dark=dark)
    tab.open(PAGES[name])
    assert tab.violations() == []
    assert tab.log() == []
    assert tab.run("return document.documentElement.scrollWidth") == width
    visible = tab.run("return [...document.querySelectorAll('svg[role=img]')].filter(s => s.checkVisibility()).length")
    drawn = tab.run("return document.querySelectorAll('svg[role=img]').length")
    assert visible == drawn / 2


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["os", "hashes", "restarts"])
def test_no_text_of_a_drawing_is_cut_or_covered(tab: Page, name: str, width: int) -> None:
    tab.look(width)
    tab.open(PAGES[name])
    assert tab.run(FAULTS) == []


def test_foreign_text_runs_no_script(tab: Page) -> None:
    tab.look(1280)
    tab.open(PAGES["hostile"])
    assert tab.run("return document.scripts.length") == 0
    assert tab.run("return performance.getEntriesByType('resource').length") == 0
    assert "alert(1)" in tab.run("return document.querySelector('h1').textContent")


def test_bars_are_to_scale(tab: Page) -> None:
    tab.look(1280)
    tab.open(PAGES["os"])
    widths = tab.run(
        "const svg = document.querySelector('svg.desk');"
        "return Object.fromEntries([...svg.querySelectorAll('rect')].map("
        "r => [r.textContent, r.getBoundingClientRect().width]))"
    )
    staging, verifying = widths["Staging, 1 min 38 s"], widths["Verifying, 36.9 s"]
    assert staging / verifying == pytest.approx(98.0 / 36.9, rel=0.02)
    assert widths["out of service 49.9 s"] / staging == pytest.approx(49.9 / 98.0, rel=0.02)


def test_it_prints_on_a_few_pages(tab: Page) -> None:
    tab.look(1280, dark=True, media="print")
    tab.open(PAGES["os"])
    assert tab.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.run("return document.querySelector('svg.desk').checkVisibility()")
    pages = len(re.findall(rb"/Type\s*/Page[^s]", tab.print()))
    assert 1 <= pages <= 4
