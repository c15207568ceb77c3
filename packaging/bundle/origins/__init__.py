# SPDX-License-Identifier: Apache-2.0
"""The origins of the interpreter, with one interface.

`source` builds it from Debian's source packages. `standalone` takes python-build-standalone. `testing` puts it together
from packages that were made for something else, in seconds, for tests and demos.
"""

from __future__ import annotations

from bundle import lock
from bundle.origins import source, standalone, testing
from bundle.origins.base import Origin

MODULES: dict[str, Origin] = {lock.SOURCE: source, lock.STANDALONE: standalone, lock.TESTING: testing}
