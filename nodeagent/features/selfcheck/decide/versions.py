# SPDX-License-Identifier: Apache-2.0
"""Judge the versions of package, host and running daemon, and whether the boot loader counts boots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from nodeagent.core.interpreter import TESTING, describe
from nodeagent.core.self_check import NotRead, SelfCheck, failed, ok, skipped, unread, warning
from nodeagent.features.selfcheck.decide.bus import UNIT

INTERPRETER_CHECK: Final = "versions.interpreter"
_OTHER_PACKAGE: Final = "install a package of a release, or one that make package wrote"

# As the RPM requires them. The package is built for this glibc, and the unit needs this systemd.
OLDEST: Final = {"systemd": (250,), "glibc": (2, 34)}


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """``listed`` are the versions of the package's list of components; ``loaded`` are those that this process uses.
    ``host`` are the versions of the host, without those that are not known. ``interpreter`` is its origin."""

    listed: Mapping[str, str] | NotRead
    interpreter: str | NotRead
    loaded: Mapping[str, str]
    host: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RunningFacts:
    """``replaced``: a file of the package that the daemon uses and that has been replaced since, "" if none is
    known."""

    version: str
    replaced: str = ""


def version_checks(program: str, facts: VersionFacts | NotRead, running: RunningFacts | NotRead) -> Iterator[SelfCheck]:
    """``program`` is the version of this program."""
    if isinstance(facts, NotRead):
        yield from (unread(name, facts) for name in ("versions.package", INTERPRETER_CHECK, "versions.host"))
    else:
        yield _package(facts)
        yield interpreter_check(facts.interpreter)
        yield _host(facts.host)
    yield unread("versions.daemon", running) if isinstance(running, NotRead) else _daemon(program, running)


def _package(facts: VersionFacts) -> SelfCheck:
    name = "versions.package"
    if isinstance(facts.listed, NotRead):
        return unread(name, facts.listed)
    # A package that was copied over an older one leaves modules of both.
    for component, version in facts.loaded.items():
        if (expected := facts.listed.get(component, "")) != version:
            message = f"{component} is {version}, and the package lists {expected or 'none'}: files of two packages"
            return failed(name, message, "install the package again")
    shown = ", ".join(f"{component} {version}" for component, version in facts.loaded.items())
    return ok(name, shown)


def _host(versions: Mapping[str, str]) -> SelfCheck:
    name = "versions.host"
    for component, oldest in OLDEST.items():
        if component in versions and _numbers(versions[component]) < oldest:
            needed = ".".join(map(str, oldest))
            return failed(name, f"{component} is {versions[component]}, and {needed} is needed", "update the host")
    if not versions:
        return skipped(name, "the versions of this host are not known", "run it on the booted host")
    return ok(name, ", ".join(f"{component} {version}" for component, version in versions.items()))


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version such as ``257 (257.7-1)`` or ``2.36``."""
    # Distributions add the version of their package, and systemd adds words.
    leading = re.match(r"[0-9]+(\.[0-9]+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def _daemon(program: str, running: RunningFacts) -> SelfCheck:
    name, restart = "versions.daemon", f"systemctl restart {UNIT}; an update under way is resumed"
    if running.version != program:
        return failed(name, f"the running daemon is {running.version}, and {program} is installed", restart)
    # The process would import its next module from the other version.
    if running.replaced:
        return failed(name, f"the running daemon uses a file that was replaced: {running.replaced}", restart)
    return ok(name, f"the running daemon is {program}")


def interpreter_check(origin: str | NotRead) -> SelfCheck:
    if isinstance(origin, NotRead):
        return unread(INTERPRETER_CHECK, origin)
    if origin == TESTING:
        return warning(INTERPRETER_CHECK, describe(origin), _OTHER_PACKAGE)
    return ok(INTERPRETER_CHECK, describe(origin) or "the package does not name its origin")
