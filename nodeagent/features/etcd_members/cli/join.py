# SPDX-License-Identifier: Apache-2.0
"""`nodeagent etcd join`."""

from __future__ import annotations

import argparse
from typing import Final

from nodeagent.features.etcd_members.cli import _change
from nodeagent.features.etcd_members.decide.membership import MemberRequest, OperationKind

REQUEST: Final = MemberRequest(OperationKind.JOIN)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _change.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    return _change.run(REQUEST, wait=not args.no_wait, as_json=args.json)
