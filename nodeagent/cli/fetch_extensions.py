"""`nodeagent fetch-extensions`: unpack the packages of an extensions image. For nodeagent-extensions.service only."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("request", type=Path, metavar="REQUEST", help="the file with the request of the daemon")


def run(args: argparse.Namespace) -> int:
    from nodeagent.host.rpmostree.extensions_image import main

    return main(args.request)
