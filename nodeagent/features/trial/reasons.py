# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class TrialReason(ReasonEnum):
    # fmt: off
    ON_TRIAL = "OnTrial", Kind.REFUSED, "log in again and run nodeagent keep there; nodeagent keep --revert goes back now", "A config is on trial: it is taken back at the end of its time, unless it is kept."
    NOT_KEPT = "NotKept", Kind.REFUSED, "correct the config, or check why no login kept it, and apply it again", "The trial of a config ended and no login had kept it, so the host went back."
    NO_TRIAL = "NoTrial", Kind.REFUSED, "nodeagent status shows what the host does; nodeagent history shows how a trial ended", "No config is on trial now."
    OLD_LOGIN = "OldLogin", Kind.REFUSED, "log in again, outside of tmux, screen and shared ssh connections, and run nodeagent keep there", "The session began before the trial, or within another one, so it does not prove that a login works."
    NO_LOGIN = "NoLogin", Kind.REFUSED, "log in to this host and run nodeagent keep there; --without-login keeps it without that proof", "The caller belongs to no login session that logind knows, so nothing proves that a login works."
    BAD_TRIAL = "BadTrial", Kind.INPUT, "write 90s, 10m or 2h; a trial takes 1 minute to 24 hours", "The time of a trial has no valid form, or is too short or too long."
    NO_WAY_BACK = "NoWayBack", Kind.REFUSED, "set on_failure: revert in the settings, or apply without --try", "The settings forbid to take a config back, which the end of a trial does."
    # fmt: on
