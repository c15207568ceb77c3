# SPDX-License-Identifier: Apache-2.0
"""`nodeagent etcd replace`."""

from __future__ import annotations

import argparse

from nodeagent.features.etcd_members.cli import _change
from nodeagent.features.etcd_members.decide.membership import MemberRequest, OperationKind


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--member", default="", metavar="NAME", help="name or id (default: that of this host)")
    _change.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    return _change.run(MemberRequest(OperationKind.REPLACE, args.member), wait=not args.no_wait, as_json=args.json)
