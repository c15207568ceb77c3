# SPDX-License-Identifier: Apache-2.0
"""A trial as data: how much of its time is left, and which login proves that the host can be reached.

Its time runs on CLOCK_BOOTTIME, so a wall clock that is set does not matter. It begins again in each boot, because
everything that the config changes took effect again there. A login is compared on CLOCK_MONOTONIC, with which logind
notes its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

import msgspec

from nodeagent import typed
from nodeagent.core.times import parse_duration
from nodeagent.errors import Cause
from nodeagent.features.trial.reasons import TrialReason

# The name of the trial in the store.
NOTE: Final = "trial"

# Seconds. A shorter time leaves none to log in; a longer one is probably a typing error.
SHORTEST, LONGEST = 60, 86400

# Seconds before the end at which the journal has a warning.
WARN_BEFORE: Final = 60.0

# PAM services that begin a session from within another one, or from none.
_NOT_LOGINS: Final = frozenset(
    {"systemd-run0", "su", "su-l", "sudo", "sudo-i", "runuser", "runuser-l", "cron", "crond", "atd"}
)


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial of ``config`` in the update ``update_id``, for ``seconds``.

    ``back`` is the config that the host goes back to, "" for its state before the first one. ``since`` is RFC 3339.
    ``began`` is on the boot clock of ``boot_id``, and ``login_clock`` the same moment on the clock of logins.
    ``kept_by`` names the operator who kept it. ``over``: it is taken back, as ``ended_by`` requested, or at
    the end of its time.
    """

    update_id: str
    digest: str
    config: str
    back: str
    seconds: float
    requester: str
    since: str
    boot_id: str
    began: float
    login_clock: float
    kept_by: str = ""
    over: bool = False
    ended_by: str = ""

    def left(self, now: float) -> float:
        """Return the seconds that are left in its boot."""
        return self.began + self.seconds - now

    def continues(self, update_id: str, boot_id: str) -> bool:
        """Return whether the trial is that of this update, and its time goes on or is not needed any more."""
        return self.update_id == update_id and (self.boot_id == boot_id or bool(self.kept_by or self.over))

    @property
    def end(self) -> Cause:
        """Why the config is taken back."""
        if self.ended_by:
            return Cause(TrialReason.NOT_KEPT, f"{self.ended_by} ended the trial of {self.config}")
        return Cause(TrialReason.NOT_KEPT, f"no new login kept {self.config} within {in_words(self.seconds)}")


@dataclass(frozen=True, slots=True)
class Login:
    """A session of logind. ``service`` is that of PAM, ``kind`` its class, ``began`` on CLOCK_MONOTONIC in seconds.
    ``remote_host`` is "" for a console."""

    id: str
    service: str
    kind: str
    began: float
    remote_host: str = ""


def why_no_proof(login: Login | None, trial: Trial) -> Cause | None:
    """Return why a caller in this session cannot keep the config; None if it can. Without a ``login`` it has none."""
    if login is None:
        return Cause(TrialReason.NO_LOGIN, "the caller belongs to no login session")
    # Classes of a session that runs something for a user and is none, such as background, greeter and manager.
    if not login.kind.startswith("user"):
        return Cause(TrialReason.NO_LOGIN, f"session {login.id} is no login, but of class {login.kind or 'unknown'}")
    if login.service in _NOT_LOGINS:
        return Cause(TrialReason.OLD_LOGIN, f"session {login.id} was begun by {login.service} and by no login")
    # A connection of the host to itself crosses no network, and a surviving session can make one.
    if _is_here(login.remote_host):
        return Cause(TrialReason.OLD_LOGIN, f"session {login.id} was begun from this host ({login.remote_host})")
    # logind keeps the beginning of a session for as long as it lasts, so one that survived is recognized.
    if login.began <= trial.login_clock:
        return Cause(
            TrialReason.OLD_LOGIN, f"session {login.id} is older than the trial of {trial.config}, so it proves nothing"
        )
    return None


def _is_here(host: str) -> bool:
    try:
        # sshd gives an address, maybe with the interface of a link-local one; others give a name.
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("localhost.")


def seconds_of(text: str) -> int:
    """Return the seconds that an operator writes, as 10m. Raises ``ValueError``."""
    return _within(parse_duration(text), text)


def requested(text: str) -> int:
    """Return the seconds of the option of a request; 0 for "". Raises ``ValueError``."""
    if not text:
        return 0
    # The bus carries any text, and int() takes time for very many digits.
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(f"{text!r} is not a number of seconds")
    return _within(int(text), text)


def _within(seconds: int, text: str) -> int:
    if not SHORTEST <= seconds <= LONGEST:
        raise ValueError(f"{text!r} is not from {in_words(SHORTEST)} to {in_words(LONGEST)}")
    return seconds


def in_words(seconds: float) -> str:
    """Return 90 s, 10 min or 2 h."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def to_text(trial: Trial) -> str:
    """Return the trial as text for the store."""
    return msgspec.json.encode(trial, order="sorted").decode()


def from_text(text: str) -> Trial | None:
    """Return the trial that ``to_text`` wrote; None for "" and for a damaged note, whose trial begins again."""
    try:
        # Keys of a newer agent are dropped.
        return typed.from_json(text, Trial)
    except ValueError:
        return None
