"""structlog without rich.

structlog's development renderer imports rich wherever that is installed, and the command line brings it. We do not use
that renderer, and it would cost every daemon 0.15 s and 6 MB; so rich is out of sight while structlog is imported.
"""

from __future__ import annotations

import sys

__all__ = ["structlog"]

_hidden = "rich" not in sys.modules
if _hidden:
    sys.modules["rich"] = None  # type: ignore[assignment]  # the documented way to make an import fail
try:
    import structlog
finally:
    if _hidden:
        del sys.modules["rich"]
