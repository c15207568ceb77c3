# SPDX-License-Identifier: Apache-2.0
"""Deployments of the OS on a host that bootc updates: images, staged by libostree. bootc itself is never called."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Command

COMMANDS: Final = (
    Command(
        "write-sysroot",
        "run ostree with a writable /sysroot; for nodeagent-pull.service",
        "nodeagent.features.bootc.cli",
        after="daemon",
        no_json="a unit runs it, and reads the exit status",
    ),
)
