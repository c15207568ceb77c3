# SPDX-License-Identifier: Apache-2.0
"""Pods that must not be stopped, such as backups and builds: an update begins when none of them runs on the node."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import Option

OPTIONS: Final = (
    Option(
        "--busy-pods",
        "evict",
        "evict: begin although pods run for which the update would wait (busy_pods)",
        "nodeagent.features.busy_pods.door",
        takes=(("busy_pods", "`evict`"),),
    ),
)
