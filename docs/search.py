# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs for the search: how-to pages first, and no script of another host in a copy of the site on disk."""

from __future__ import annotations

import re
from typing import Any

# By the folder of a page. Titles of development pages have the words of the how-to pages, and the lists of the
# reference have each word in some entry.
BOOST = {
    "usage": 20.0,
    "tutorial.md": 10.0,
    "explanation": 3.0,
    "reference": 0.5,
    "development": 0.02,
    "research": 0.02,
}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    boost = BOOST.get(page.file.src_uri.partition("/")[0])
    if boost is not None:
        page.meta.setdefault("search", {"boost": boost})
    return markdown


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    return _own_script(output, "../" * page.file.dest_uri.count("/"))


def on_post_template(output: str, *, template_name: str, **_: Any) -> str:
    # The page of a web server for what does not exist. Its addresses begin at the root.
    return _own_script(output, "/") if template_name == "404.html" else output


def _own_script(html: str, up: str) -> str:
    """Replace the script of another host that the theme adds for the search on disk."""
    return re.sub(r'<script src="https://unpkg\.com/iframe-worker/shim">', f'<script src="{up}offline.js">', html)
