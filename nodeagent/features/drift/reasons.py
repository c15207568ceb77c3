# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class DriftReason(ReasonEnum):
    # fmt: off
    DRIFT_CONTENDED = "DriftContended", Kind.FAULT, "find the program (nodeagent status may name it) and stop it, or remove the entry from the config", "Another program changes an entry again after each repair, so the agent stopped repairing it."
    NO_WATCH = "NoWatch", Kind.RETRY, "raise fs.inotify.max_user_watches and max_user_instances; drift is found later until then", "The kernel watches no more paths for this host."
    # fmt: on
