# SPDX-License-Identifier: Apache-2.0
"""The data that outlives an update: the rejected configs, and the fallback reboots of the host.

A rejected config is not tried again. The budget limits the fallback reboots of a day, whatever is applied to the host.
Time is counted while the agent runs, on the steady clock of each boot, and added up over boots. So neither a wall clock
that is set nor a reboot makes room; time for which the host was off, or the agent had not started yet, does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodeagent.core.enumerated import enumerated
from nodeagent.errors import Cause

# Fallback reboots in a window. An admin who tries to find the right config on a host needs a few; a tool that renders a
# new bad one every minute gets no more.
REBOOTS = 5

# Seconds.
WINDOW = 86400.0

USED_UP = f"not rebooted: there were {REBOOTS} fallback reboots in {WINDOW / 3600:.0f} h of running time"


@dataclass(frozen=True, slots=True)
class Budget:
    """``seen`` is the time for which this host ran, in seconds, as counted in the boot ``boot_id`` when its steady
    clock showed ``at``; ``spent`` holds what it was at each fallback reboot."""

    seen: float = 0.0
    boot_id: str = ""
    at: float = 0.0
    spent: tuple[float, ...] = ()

    @property
    def left(self) -> bool:
        return len(self.spent) < REBOOTS

    def counted(self, boot_id: str, now: float, began: float) -> Budget:
        """Return the budget at ``now``. In another boot, time counts from ``began``, the start of this process."""
        before = self.at if boot_id == self.boot_id else began
        seen = self.seen + max(0.0, now - before)
        spent = tuple(moment for moment in self.spent if seen - moment < WINDOW)
        return Budget(seen, boot_id, now, spent)

    def spend(self) -> Budget:
        return replace(self, spent=(*self.spent, self.seen)[-REBOOTS:])


@dataclass(frozen=True, slots=True)
class Hold:
    """What an operator requested about the update to the config with this digest.

    With ``no_reboot``, an update that reboots waits before its first write, and no other one falls back to a reboot.
    With ``boot_staged``, its reboot may boot what another program has staged. ``requester`` is the operator.
    ``options`` are those of features (``commands.Option``).
    """

    digest: str
    no_reboot: bool = False
    requester: str = ""
    boot_staged: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestedReboot:
    """A reboot without a change of the config. It is an update from the config in effect to the same one, whose plan
    drains and reboots, so it has the lease, the checks and the verification of each update.

    ``id`` is also that of its update. ``requester`` requested it, and ``purpose`` is "" without a reason.

    With ``at_once``, it passes over the times of updates, and comes before an update that waits. ``boot_staged`` and
    ``options`` as in ``Hold``.
    """

    id: str
    requester: str
    purpose: str = ""
    at_once: bool = False
    boot_staged: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        return f"reboot requested by {self.requester}" + (f": {self.purpose}" if self.purpose else "")


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What an operator confirmed for the config with this digest: the number of entries that it removes, and that no
    user can log in with it."""

    digest: str
    removes: int = 0
    lockout: bool = False


# Rejections that are kept, the newest last. A tool that alternates between more bad configs is stopped by the budget of
# fallback reboots.
LIMIT = 16

# Characters of the cause that are shown, and kept of older rejections: the whole of it is in the history.
WORDS = 300


@dataclass(frozen=True, slots=True)
class Rejection:
    """``digest`` is that of the text. ``meaning`` is "" if the config was not read, which an operator cancelled."""

    digest: str
    meaning: str = ""
    name: str = ""
    why: str = ""
    # RFC 3339.
    since: str = ""
    # "Cancelled": an operator cancelled its update. "RolledBack", in a plan only. "": it failed here.
    reason: str = ""

    @property
    def brief(self) -> str:
        """The beginning of the cause."""
        return self.why[:WORDS]

    def words(self, name: str) -> str:
        """Return a sentence: when and why the config that is now called ``name`` was rejected."""
        since = f" at {self.since}" if self.since else ""
        if self.reason:
            return f"the update to {name} was {self.brief}{since}"
        other = f" as {self.name}" if self.name not in ("", name) else ""
        return f"{name} failed on this host{other}{since}: {self.brief}"


# Entries in a message; the status has all of them.
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Partial:
    """A desired config of which the host has only the parts that need no disruption, beside the current config.

    ``digest`` is the config that was composed of both, which is what the host is compared with. ``desired`` and
    ``name`` are those of the desired config. ``applied`` and ``waits`` are ids of changes; ``waits`` pairs them with
    what they wait for. ``cause`` is why the rest could not be applied. ``fixes``: the desired config failed on this
    host, so of its safe parts only credentials, trust and access were applied.
    """

    digest: str
    desired: str
    name: str
    cause: Cause
    applied: tuple[str, ...] = ()
    waits: tuple[tuple[str, str], ...] = ()
    # RFC 3339.
    since: str = ""
    fixes: bool = False

    @property
    def words(self) -> str:
        """Return a sentence for operators: how much is applied, what waits, and why."""
        waits = enumerated((entry for entry, _ in self.waits), SHOWN)
        count = f"{len(self.applied)} of {len(self.applied) + len(self.waits)} changes are applied"
        return f"{count}; waiting: {waits} ({self.cause})"


def applied_of(partial: Partial | None, *digests: str) -> int:
    """Return how many changes of the config with one of these digests the host has, beside the current config."""
    return len(partial.applied) if partial is not None and partial.desired in digests else 0


def left_by(partial: Partial | None, *digests: str) -> str:
    """Return what an update to that config leaves that ends before its first write, as the end of its message."""
    count = applied_of(partial, *digests)
    if not count:
        return "nothing was changed"
    return f"{count} of its changes {'was' if count == 1 else 'were'} applied before"


def matching(rejections: Sequence[Rejection], digest: str, meaning: str) -> Rejection | None:
    """The newest rejection of this config, or of one with the same meaning."""
    return next((rejection for rejection in reversed(rejections) if _same(rejection, digest, meaning)), None)


def added(rejections: Sequence[Rejection], new: Rejection) -> tuple[Rejection, ...]:
    others = (replace(rejection, why=rejection.brief) for rejection in without(rejections, new.digest, new.meaning))
    return (*others, new)[-LIMIT:]


def without(rejections: Sequence[Rejection], digest: str, meaning: str) -> tuple[Rejection, ...]:
    return tuple(rejection for rejection in rejections if not _same(rejection, digest, meaning))


def _same(rejection: Rejection, digest: str, meaning: str) -> bool:
    return bool(digest and rejection.digest == digest) or bool(meaning and rejection.meaning == meaning)


@dataclass(frozen=True, slots=True)
class Lasting:
    """The data that outlives every update: configs that are applied on request only, and the reboot budget.

    ``rejections`` are configs that failed here, the newest last. An operator rolled back from ``rolled_back_digest``.
    ``partial`` is set while the host has only parts of a desired config.
    """

    rejections: tuple[Rejection, ...] = ()
    rolled_back_digest: str = ""
    rolled_back_meaning: str = ""
    budget: Budget = field(default_factory=Budget)
    partial: Partial | None = None
    # What an operator requested for one config.
    hold: Hold | None = None
    # What an operator confirmed for one config.
    confirmed: Confirmation | None = None

    @property
    def failed_digest(self) -> str:
        """The digest of the config that failed last, "" if there is none."""
        return self.rejections[-1].digest if self.rejections else ""

    @property
    def failed_why(self) -> str:
        return self.rejections[-1].why if self.rejections else ""

    def without(self, digest: str, meaning: str) -> Lasting:
        """Forget the rejection of a config that is applied now: it has failed only when it fails again."""
        return replace(self, rejections=without(self.rejections, digest, meaning))
