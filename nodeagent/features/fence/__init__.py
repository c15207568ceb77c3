# SPDX-License-Identifier: Apache-2.0
"""The fence: limits on disk I/O while a deployment is staged, so that etcd keeps its latency."""

from __future__ import annotations

from typing import Final

from nodeagent.commands import HistoryRows, StatusRows

ROWS: Final = (StatusRows("fence", f"{__name__}.cli", after=""),)
HISTORY: Final = (HistoryRows("etcd_disk", f"{__name__}.cli", header="ETCD FSYNC P99"),)
