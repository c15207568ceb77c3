# SPDX-License-Identifier: Apache-2.0
"""The list of the components of the package, on this host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import nodeagent

SBOM: Final = "sbom.cdx.json"


def sbom() -> Path:
    """Return the path of the list of components. An installed wheel has no such file."""
    # The package for the Python of the host has the modules in a directory of its own (packaging/bundle/noarch.py).
    of_host = Path(nodeagent.__file__).parents[2] / SBOM
    return of_host if of_host.exists() else Path(sys.prefix) / SBOM
