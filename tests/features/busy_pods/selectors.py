# SPDX-License-Identifier: Apache-2.0
"""Label selectors that the API server takes, and that it does not: a real one decides about the same in ring 3."""

from __future__ import annotations

from typing import Final

VALID: Final = (
    "app=backup",
    "app==backup",
    "app!=backup",
    "app",
    "!app",
    "! app",
    "app=",
    "app in (a)",
    "app in (a,b)",
    "app notin ( a , b )",
    "app in (,a)",
    "app in (a,)",
    "app in (in,notin)",
    "in in (in)",
    "notin",
    "a in(b)",
    " a = b , c ",
    "example.com/role=db,!idle,tier in (x,y)",
    "a-b.c_d=E.f-G_h",
    "size>5",
    "size < 7",
    f"{'k' * 63}={'v' * 63}",
    f"{'p' * 253}/k",
    "a..b=c",
)

INVALID: Final = (
    "a=b,",
    ",a=b",
    "a=b,,c=d",
    "a=b c=d",
    "a = b c",
    "a in b",
    "a in (b",
    "a in b)",
    "a in",
    "ain(b)",
    "in (a)",
    "=b",
    "!",
    "!a=b",
    "!!a",
    "a=!b",
    "a=b=c",
    "a>x",
    "a>",
    "a>-1",
    "a>1.5",
    "-a",
    "a-",
    "a=-b",
    "a=b_",
    "a/b/c",
    "/a",
    "a/",
    "A/b",
    "a_b/c",
    ".a/b",
    "a..b/c",
    "a=b;c=d",
    "a=é",
    "a='b'",
    f"{'k' * 64}=v",
    f"k={'v' * 64}",
    f"{'p' * 254}/k",
)

# The API server takes them, and matches no pod, or stops reading in the middle: an admin meant something else.
REFUSED_HERE: Final = ("a in ()", "a=b\x00")
