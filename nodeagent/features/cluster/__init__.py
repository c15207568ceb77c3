# SPDX-License-Identifier: Apache-2.0
"""Coordinate with a Kubernetes cluster: node lease, drain, readiness, other actors, the desired config, and reports."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import StatusRows

ROWS: Final = (StatusRows("drain", f"{__name__}.cli", after="lease"),)
