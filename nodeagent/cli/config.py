# SPDX-License-Identifier: Apache-2.0
"""`nodeagent config`: print the current config, the desired one, or another one that the store keeps."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import yaml

from nodeagent.cli._client import ask
from nodeagent.cli._io import emit
from nodeagent.cli._render import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="which", metavar="COMMAND", required=True)
    current = commands.add_parser("current", help="print the config that was applied and verified last")
    desired = commands.add_parser("desired", help="print the config that this host should have")
    named = commands.add_parser("show", help="print another config of the store")
    named.add_argument("name", metavar="CONFIG", help="its name, as in nodeagent history")
    for command in (current, desired, named):
        command.add_argument("--show-secrets", action="store_true", help="print secrets as well (root)")
        command.add_argument("--json", action="store_true", help="one JSON object (nodeagent/machineconfig/v1)")


def run(args: argparse.Namespace) -> int:
    """Return 0. The output is a MachineConfig in YAML, which other commands read if nothing is hidden in it."""
    which, name = ("named", args.name) if args.which == "show" else (args.which, "")
    answer = ask(
        lambda client: client.config(which, name, secrets=args.show_secrets),
        lambda stored: stored.config(which, name, secrets=args.show_secrets),
    )
    if args.json:
        emit(answer)
        return 0
    print_yaml(answer["config"])
    if hidden := answer["hidden"]:
        print(f"{counted(len(hidden), 'value')} hidden; --show-secrets prints them, as root", file=sys.stderr)
    return 0


def print_yaml(document: dict[str, Any]) -> None:
    """Print a MachineConfig as other commands read it."""
    # The dumper in C is many times faster, and PyYAML may have been built without it.
    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]  # either of two classes
        """Prints texts of several lines as blocks."""

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    # PyYAML folds long texts at 80 columns by default.
    print(yaml.dump(document, Dumper=Dumper, sort_keys=False, width=10_000), end="")
