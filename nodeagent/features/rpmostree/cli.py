# SPDX-License-Identifier: Apache-2.0
"""`nodeagent fetch-extensions`: unpack the packages of an extensions image. For nodeagent-extensions.service only."""

from __future__ import annotations

import argparse
from pathlib import Path

from nodeagent.features.rpmostree.extensions_image import main


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "credentials", type=Path, metavar="CREDENTIALS", help="directory with the request of the daemon"
    )
    parser.add_argument("state", type=Path, metavar="DIRECTORY", help="directory for the packages")


def run(args: argparse.Namespace) -> int:
    return main(args.credentials, args.state)
