"""`nodeagent bootstrap`: get a client certificate of its own for the agent of this node, or renew it."""

from __future__ import annotations

import argparse
from pathlib import Path

from nodeagent.cli._bootstrap import install, request
from nodeagent.settings.load import load

SOURCE = "/etc/nodeagent/bootstrap-kubeconfig"
STEPS = ("request", "install")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 86400:
        # argparse reports it as an error of usage.
        raise ValueError
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="source",
        default=SOURCE,
        metavar="FILE",
        help=f"kubeconfig for the first request ({SOURCE})",
    )
    # The unit allows 15 minutes for a run (TimeoutStartSec=), which includes the requests.
    parser.add_argument(
        "--wait", type=_seconds, default=600.0, metavar="SECONDS", help="longest wait for the approval (600)"
    )
    parser.add_argument(
        "--step",
        choices=STEPS,
        default="",
        help="only request the certificate, or only write the kubeconfig, as the unit does (both)",
    )
    parser.add_argument("--renew", action="store_true", help="renew the certificate also before it is due")


def run(args: argparse.Namespace) -> int:
    settings, source = load().settings, Path(args.source)
    if args.step != "install":
        request(settings, source, wait=args.wait, renew=args.renew)
    if args.step != "request":
        install(settings, source)
    return 0
