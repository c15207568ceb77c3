# SPDX-License-Identifier: Apache-2.0
"""`nodeagent fleet`: commands about all nodes of a cluster, with the kubeconfig of the caller. Features add them."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_subparsers(dest="fleet_command", metavar="COMMAND", required=True)


def run(args: argparse.Namespace) -> int:
    raise AssertionError(f"each command has a function of its own: {args}")
