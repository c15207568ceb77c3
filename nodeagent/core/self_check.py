# SPDX-License-Identifier: Apache-2.0
"""The result of one check of the installation, facts that could not be read, and whether a server answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckResult(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """``id`` is stable. ``remedy`` is the next step for an admin, "" for a check that passed."""

    id: str
    result: CheckResult
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class NotRead:
    """A fact that was not read. ``fault``: it should have been readable. Otherwise it does not apply to this host, or
    is not for this user."""

    why: str
    remedy: str = ""
    fault: bool = False


def ok(name: str, message: str) -> SelfCheck:
    return SelfCheck(name, CheckResult.OK, message)


def warning(name: str, message: str, remedy: str) -> SelfCheck:
    """A finding on an installation that works."""
    return SelfCheck(name, CheckResult.WARNING, message, remedy)


def failed(name: str, message: str, remedy: str) -> SelfCheck:
    return SelfCheck(name, CheckResult.FAILED, message, remedy)


def skipped(name: str, message: str, remedy: str = "") -> SelfCheck:
    return SelfCheck(name, CheckResult.SKIPPED, message, remedy)


def unread(name: str, fact: NotRead) -> SelfCheck:
    # What is not for this user, or not on this host, must not fail the check of an installation.
    return SelfCheck(name, CheckResult.FAILED if fact.fault else CheckResult.SKIPPED, fact.why, fact.remedy)


@dataclass(frozen=True, slots=True)
class OsService:
    """The program that serves the OS fields of a config. ``unit`` pulls images.

    ``why`` it serves none on this host, "" if it does; ``remedy`` is the way out. ``refused`` are fields that it never
    serves. ``others`` are programs of which one serves the host instead where it has staged an OS before, for a reader
    who cannot tell.
    """

    program: str
    unit: str
    why: str = ""
    remedy: str = ""
    refused: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReachFacts:
    """``target`` names the server. ``error`` is "" if it answered as it has to."""

    target: str
    error: str = ""
    remedy: str = ""


def reach_check(name: str, facts: ReachFacts | NotRead) -> SelfCheck:
    if isinstance(facts, NotRead):
        return unread(name, facts)
    if facts.error:
        return failed(name, f"{facts.target}: {facts.error}", facts.remedy or "check address, network and firewall")
    return ok(name, facts.target)
