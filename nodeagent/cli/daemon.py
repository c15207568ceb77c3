# SPDX-License-Identifier: Apache-2.0
"""`nodeagent daemon`: run the daemon. For nodeagent.service; an operator runs systemctl start nodeagent."""

from __future__ import annotations

import argparse

from nodeagent.agent.daemon import main


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """Add none: the settings configure the daemon."""


def run(_args: argparse.Namespace) -> int:
    return main()
