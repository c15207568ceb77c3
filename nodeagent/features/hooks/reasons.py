# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class HookReason(ReasonEnum):
    # fmt: off
    HOOK_FAILED = "HookFailed", Kind.REFUSED, "run the named hook by hand with the JSON of its page; no update waits for it", "A hook of the admin failed or took too long, so its notice may be missing."
    HOOK_UNSAFE = "HookUnsafe", Kind.REFUSED, "correct the named file: owned by root, writable by root only, executable, in EVENT.d", "A hook of the admin could be changed by other users, or nothing would run it."
    # fmt: on
