# SPDX-License-Identifier: Apache-2.0
"""`nodeagent version`: show the versions of this program and of the running daemon.

An upgrade does not restart the daemon, so they may differ.
"""

from __future__ import annotations

import argparse
import platform
import sys
from typing import Any

import nodeagent
from nodeagent.cli._client import Client, ask
from nodeagent.cli._io import emit
from nodeagent.core.config.text import plain_json
from nodeagent.core.interpreter import describe, origin_of
from nodeagent.errors import AgentError
from nodeagent.host.components import sbom


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "also the origin of the interpreter, and the bundled components with versions and licences"
    parser.add_argument("--verbose", action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="one JSON object (nodeagent/version/v1)")


def run(args: argparse.Namespace) -> int:
    """Return 0, with or without a daemon."""
    try:
        daemon = ask(Client.version)
    # The version of this program is the answer, with or without a daemon.
    except AgentError:
        daemon = ""
    if args.json:
        answer: dict[str, Any] = {"schema": "nodeagent/version/v1", "version": nodeagent.__version__, "daemon": daemon}
        emit(answer | (_bundle() if args.verbose else {}))
        return 0
    print(f"nodeagent {nodeagent.__version__}")
    if daemon and daemon != nodeagent.__version__:
        print(f"the running daemon is {daemon}; systemctl restart nodeagent starts the new version")
    if args.verbose:
        bundle = _bundle()
        origin = describe(bundle["interpreter"])
        print(f"Python {bundle['python']}, {sys.executable}{', ' if origin else ''}{origin}")
        components = bundle["components"]
        width = max((len(component["name"]) for component in components), default=0)
        for component in components:
            print(f"  {component['name']:{width}}  {component['version']:9} {component['license']}")
        if not components:
            print("not the self-contained package: the components are those of this Python installation")
    return 0


def _bundle() -> dict[str, Any]:
    """Return the version of Python, and the origin of the interpreter and all components of the package.

    An installation from a wheel has no origin and no components.
    """
    answer: dict[str, Any] = {"python": platform.python_version(), "interpreter": "", "components": []}
    try:
        document = plain_json.loads(sbom().read_text())
    except FileNotFoundError:
        return answer
    return answer | {
        "interpreter": origin_of(document),
        "components": [_component(component) for component in document["components"]],
    }


def _component(entry: dict[str, Any]) -> dict[str, str]:
    # The package URL of a part of the interpreter is that of what it was made of.
    made_of = entry.get("externalReferences", [{"url": entry["purl"]}])[0]["url"]
    return {
        "name": entry["name"],
        "version": entry.get("version", ""),
        "license": entry["licenses"][0]["expression"],
        "origin": made_of,
    }
