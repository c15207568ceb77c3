# SPDX-License-Identifier: Apache-2.0
"""Deployments of the OS that rpm-ostree makes: images, kernel arguments, and packages of an extensions image."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Command

COMMANDS: Final = (
    Command(
        "fetch-extensions",
        "unpack an extensions image; for nodeagent-extensions.service",
        "nodeagent.features.rpmostree.cli",
        after="daemon",
        no_json="a unit runs it, and reads the exit status",
    ),
)
