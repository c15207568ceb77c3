"""`nodeagent daemon`: what the unit runs. Not for people: systemctl start nodeagent."""

from __future__ import annotations

import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """None: the daemon is configured by its settings only."""


def run(_args: argparse.Namespace) -> int:
    from nodeagent.agent.daemon import main

    return main()
