# SPDX-License-Identifier: Apache-2.0
"""Load C libraries with ctypes, at the first use only.

The import of ctypes needs a page of memory that can be executed. A confined domain may not have it, and then the import
ends with a MemoryError. The daemon does without most of what it uses C libraries for, so it must start anyway.
"""

from __future__ import annotations

import errno
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes


@cache
def c_library(name: str | None = None) -> ctypes.CDLL:
    """Return a library, which keeps ``errno`` for ``ctypes.get_errno``; by default what the process has loaded.

    Raises ``OSError`` if it is missing, or if this process may not have executable memory.
    """
    try:
        import ctypes
    except MemoryError:
        message = "ctypes gets no executable memory, which SELinux or a restriction of the service denies"
        raise OSError(errno.EACCES, message) from None
    return ctypes.CDLL(name, use_errno=True)
