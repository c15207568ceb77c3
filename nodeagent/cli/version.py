"""`nodeagent version`: show the versions of this program and of the running daemon.

An upgrade does not restart the daemon, so they may differ.
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path
from typing import Any

import nodeagent
from nodeagent.cli._client import Client, ask
from nodeagent.cli._io import emit
from nodeagent.core.config.text import plain_json
from nodeagent.errors import AgentError

__all__ = ["add_arguments", "run"]

# The package lists its content here (packaging/bundle/components.py); an installed wheel has no such file.
SBOM = "sbom.cdx.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verbose", action="store_true", help="also the bundled components with versions and licences")
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/version/v1)")


def run(args: argparse.Namespace) -> int:
    """Return 0, with or without a daemon."""
    try:
        daemon = ask(Client.version)
    except AgentError:
        daemon = ""
    if args.json:
        answer: dict[str, Any] = {"schema": "nodeagent/version/v1", "version": nodeagent.__version__, "daemon": daemon}
        emit(answer | ({"python": platform.python_version(), "components": _components()} if args.verbose else {}))
        return 0
    print(f"nodeagent {nodeagent.__version__}")
    if daemon and daemon != nodeagent.__version__:
        print(f"the running daemon is {daemon}; systemctl restart nodeagent starts the new version")
    if args.verbose:
        print(f"Python {platform.python_version()}, {sys.executable}")
        components = _components()
        width = max((len(each["name"]) for each in components), default=0)
        for each in components:
            print(f"  {each['name']:{width}}  {each['version']:9} {each['license']}")
        if not components:
            print("not the self-contained package: the components are those of this Python installation")
    return 0


def _components() -> list[dict[str, str]]:
    """Return name, version and licence of each bundled component; nothing for an installation from a wheel."""
    try:
        document = plain_json.loads((Path(sys.prefix) / SBOM).read_text())
    except FileNotFoundError:
        return []
    return [
        {"name": each["name"], "version": each.get("version", ""), "license": each["licenses"][0]["expression"]}
        for each in document["components"]
    ]
