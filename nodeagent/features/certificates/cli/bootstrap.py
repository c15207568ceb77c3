# SPDX-License-Identifier: Apache-2.0
"""`nodeagent bootstrap`: get a client certificate of its own for the agent of this node, or renew it."""

from __future__ import annotations

import argparse
from pathlib import Path

from nodeagent.features.certificates.cli import _units as units
from nodeagent.features.certificates.cli._steps import bootstrap
from nodeagent.settings.load import load

SOURCE = "/etc/nodeagent/bootstrap-kubeconfig"
STEPS = ("prepare", "request", "install")


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
        help="take one step only, for the units (all steps)",
    )
    parser.add_argument("--renew", action="store_true", help="renew the certificate also before it is due")


def run(args: argparse.Namespace) -> int:
    if args.step == "request":
        # It sees no settings.
        return units.request_task(args.wait)
    settings, source = load().settings, Path(args.source)
    match args.step:
        case "prepare":
            return units.prepare_task(settings, source)
        case "install":
            return units.install_certificate(settings, source)
        case _:
            return bootstrap(settings, source, wait=args.wait, renew=args.renew)
