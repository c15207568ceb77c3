# SPDX-License-Identifier: Apache-2.0
"""Text as a hostile program may write it."""

from __future__ import annotations

from typing import Final

BAD: Final = "\x1b]0;owned\x07\x1b[31mroot: all is well\nNov 23 host sshd[1]: Accepted\u202e" + "x" * 5000
