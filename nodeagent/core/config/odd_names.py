# SPDX-License-Identifier: Apache-2.0
"""Names that are valid and yet probably a mistake: of templates, of editors, of the clipboard."""

from __future__ import annotations

import re
import unicodedata
from difflib import get_close_matches
from typing import Final

_PLACEHOLDER: Final = re.compile(r"\$\{[^}]*\}|\$\([^)]*\)|\{\{|<[A-Z][A-Z0-9_-]*>")
_QUOTES: Final = frozenset("“”„‘’‚«»‹›`")

# Directories of hier(7) below the root, in which configs have files, and similar names that are none of them.
_TOP: Final = ("boot", "etc", "home", "mnt", "opt", "root", "run", "srv", "usr", "var")
_OTHERS: Final = ("net", "sysroot")
# Similarity of two names: that of ect and etc, but not of data and var.
_NEAR: Final = 0.66


def odd(name: str) -> str:
    """Return why a path or another name is probably not meant as it is, "" if it looks fine."""
    if placeholder := _PLACEHOLDER.search(name):
        return f"has {placeholder[0]}, a placeholder that no template engine has replaced"
    if any(part != part.strip() for part in name.split("/")):
        return "has a blank at the beginning or the end of a name"
    if not name.isascii():
        if _QUOTES & set(name):
            return "has typographic quotes"
        if any(unicodedata.category(char) in ("Cf", "Zs") and char != " " for char in name):
            return "has an invisible character, such as a no-break space"
    if name[:1] in "'\"" or name[-1:] in "'\"":
        return "has quotes, which are a part of the name"
    top = name.split("/")[1] if name.startswith("/") else ""
    if top not in ("", *_TOP, *_OTHERS) and (near := get_close_matches(top, _TOP, 1, _NEAR)):
        return f"is below /{top}: did you mean /{near[0]}?"
    return ""
