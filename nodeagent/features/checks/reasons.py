# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class CheckReason(ReasonEnum):
    # fmt: off
    CHECK_FAILED = "CheckFailed", Kind.REFUSED, "repair what the check reports, or move it from required.d to wanted.d below /etc/nodeagent/checks", "A required check of the admin failed."
    CHECK_UNSAFE = "CheckUnsafe", Kind.REFUSED, "correct the named file: owned by root, writable by root only, executable, in required.d or wanted.d", "A check of the admin could be changed by other users, or nothing would run it."
    # fmt: on
