# SPDX-License-Identifier: Apache-2.0
"""`nodeagent render`: merge MachineConfigs to one, as the machine-config-controller does for a pool."""

from __future__ import annotations

import argparse

from nodeagent.cli._io import emit
from nodeagent.cli._plan_inputs import merged_text
from nodeagent.cli.config import print_yaml
from nodeagent.core.config.text.plain_json import loads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="MachineConfigs, YAML or JSON, Ignition configs, or directories with them",
    )
    parser.add_argument("--json", action="store_true", help="the MachineConfig as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Return 0. The output is the MachineConfig that plan and apply use for the same files."""
    document = loads(merged_text(args.files))
    if args.json:
        emit(document)
    else:
        print_yaml(document)
    return 0
