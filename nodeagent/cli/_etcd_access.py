# SPDX-License-Identifier: Apache-2.0
"""The options of commands that query etcd directly."""

from __future__ import annotations

import argparse

from nodeagent.host.etcd.client import EtcdAccess


def add_access(parser: argparse.ArgumentParser) -> None:
    endpoint = "client URL (default: detected); this host's first, may be repeated"
    parser.add_argument("--endpoint", action="append", default=[], metavar="URL", help=endpoint)
    parser.add_argument("--ca", default="", metavar="FILE", help="authority of etcd's certificates (PEM)")
    parser.add_argument("--cert", default="", metavar="FILE", help="client certificate (PEM)")
    parser.add_argument("--key", default="", metavar="FILE", help="its key (PEM)")


def access_of(args: argparse.Namespace) -> EtcdAccess:
    return EtcdAccess(args.endpoint, args.ca, args.cert, args.key)
