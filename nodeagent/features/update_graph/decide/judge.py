# SPDX-License-Identifier: Apache-2.0
"""Judge a jump: dead ends, barriers, minimum versions, and what the host must have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from nodeagent.errors import Problem, Refused
from nodeagent.features.update_graph.decide.declared import Barrier, Minimum, Requirement, UpdatePath
from nodeagent.features.update_graph.decide.graph import UpdateGraph, first_hop
from nodeagent.features.update_graph.decide.release import Jump, Release, goes_up, version_key
from nodeagent.features.update_graph.reasons import JumpReason


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The host as it is after the update, as far as requirements need it. ``files`` have the content of each file;
    ``cpu_flags`` is None for a processor without such flags, to which requirements of them do not apply."""

    kernel_arguments: Sequence[str] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    cpu_flags: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """A version that the host has to reach before the target. ``below`` is "" if it has to be exactly that one;
    otherwise any version from it on does, below ``below``."""

    version: str
    below: str
    reason: str


def resolved(jump: Jump, declared: UpdatePath, graph: UpdateGraph | None) -> Jump:
    """Return the jump with the versions that the file of the admin names, and else with those that the graph knows."""

    def with_version(release: Release) -> Release:
        # The admin may name versions that compare better than those of the images.
        if named := [declared.images[content] for content in sorted(release.contents) if content in declared.images]:
            return replace(release, version=named[0])
        if not release.version and graph is not None and (index := graph.find(release)) is not None:
            return replace(release, version=graph.releases[index].version)
        return release

    return replace(jump, booted=with_version(jump.booted), target=with_version(jump.target))


def check_path(jump: Jump, declared: UpdatePath, graph: UpdateGraph | None) -> tuple[str, ...]:
    """Check where the update of ``jump`` leads, and return notes for a plan.

    Raises ``Refused`` (``DeadEnd``, ``BarrierSkipped``, ``NoUpdatePath``, ``VersionUnknown``).
    """
    # A rollback must stay possible from any version, also from one that the graph calls a dead end.
    if not goes_up(jump):
        return ()
    if graph is not None:
        _check_dead_ends(jump, graph)
    barriers = (*declared.barriers, *(graph.barriers if graph is not None else ()))
    # The edges of a graph with marked barriers, as that of Fedora CoreOS, are its rollout and forbid nothing.
    by_edges = graph is not None and not graph.marked
    if not barriers and not declared.minimum and not by_edges:
        return ()
    # The version is inside the image, and pulling it for this check alone would cost as much as the staging.
    if not jump.target.version and not jump.staged:
        return ("update path: the version of the image is known when it is staged, and is checked then",)
    for release, what in ((jump.booted, "booted"), (jump.target, "new")):
        if not release.version:
            message = f"the {what} image has no version, so its update path cannot be checked: {release.name}"
            raise Refused(message, reason=JumpReason.VERSION_UNKNOWN)
    if stop := next_stop(jump.booted.version, jump.target.version, barriers, declared.minimum):
        raise _skipped(jump, stop)
    if graph is not None and by_edges:
        _check_edges(jump, graph)
    return (f"update path: {jump.booted.version} -> {jump.target.version} is allowed",)


def next_stop(booted: str, target: str, barriers: Sequence[Barrier], minimum: Sequence[Minimum]) -> Stop | None:
    """Return the oldest version that the host has to reach before ``target``, None if it may go there at once.

    The host may always go to the stop at once, and repeating it leads to ``target``.
    """
    now, then = version_key(booted), version_key(target)
    stops = [
        Stop(barrier.version, "", barrier.reason) for barrier in barriers if now < version_key(barrier.version) < then
    ]
    stops += [
        Stop(rule.booted, rule.to, rule.reason)
        for rule in minimum
        if version_key(rule.to) <= then and now < version_key(rule.booted)
    ]
    return min(stops, key=lambda stop: (version_key(stop.version), stop.below), default=None)


def _skipped(jump: Jump, stop: Stop) -> Refused:
    step = f"{jump.booted.version} -> {jump.target.version}"
    first = f"from {stop.version} on, below {stop.below}," if stop.below else stop.version
    cause = f" ({stop.reason})" if stop.reason else ""
    message = f"{step} skips a version that must not be skipped: go to {first} first{cause}"
    return Refused(message, reason=JumpReason.BARRIER_SKIPPED)


def _check_dead_ends(jump: Jump, graph: UpdateGraph) -> None:
    for release, words in ((jump.booted, "no update leads on from"), (jump.target, "no update would lead on from")):
        index = graph.find(release)
        if index is not None and (explanation := graph.releases[index].dead_end):
            message = f"{words} {graph.releases[index].version}, a dead end of the update graph: {explanation}"
            raise Refused(message, reason=JumpReason.DEAD_END)


def _check_edges(jump: Jump, graph: UpdateGraph) -> None:
    ends = []
    for release in (jump.booted, jump.target):
        if (index := graph.find(release)) is None:
            raise Refused(f"the update graph has no release {release.name}", reason=JumpReason.NO_UPDATE_PATH)
        ends.append(index)
    start, end = ends
    # The same release from another place: no edge leads to itself.
    if start == end:
        return
    hop = first_hop(graph, start, end)
    if hop is None:
        message = f"the update graph has no way from {jump.booted.version} to {jump.target.version}"
        raise Refused(message, reason=JumpReason.NO_UPDATE_PATH)
    if hop != end:
        raise _skipped(jump, Stop(graph.releases[hop].version, "", "the update graph has no shorter way"))


def applicable(jump: Jump, declared: UpdatePath, os_id: str) -> tuple[Requirement, ...]:
    """Return the requirements of a jump. Without the version of the new image, none is known to apply."""
    if not (jump.target.version and goes_up(jump)):
        return ()
    # From an unknown version all requirements up to the new one are checked: one too many is an answer to read, one
    # too few a host that does not boot.
    before, after = jump.booted.version, version_key(jump.target.version)
    return tuple(
        requirement
        for requirement in declared.all_requirements()
        if (not requirement.os or os_id in requirement.os)
        and version_key(requirement.to) <= after
        and not (before and version_key(requirement.to) <= version_key(before))
    )


def check_requirements(jump: Jump, needed: Sequence[Requirement], facts: HostFacts) -> tuple[str, ...]:
    """Return notes for a plan. Raises ``Refused`` (``RequirementUnmet``) with a problem for each that is not met."""
    problems = [
        Problem(requirement.name, f"{obstacle}; {requirement.then}")
        for requirement in needed
        if (obstacle := _unmet(requirement, facts))
    ]
    if problems:
        count = f"{len(problems)} requirements" if len(problems) > 1 else "a requirement"
        message = f"this host does not meet {count} of {jump.target.version}"
        raise Refused(message, reason=JumpReason.REQUIREMENT_UNMET, problems=problems)
    names = ", ".join(requirement.name for requirement in needed)
    return (f"requirements of {jump.target.version}: {names}",) if needed else ()


def _unmet(requirement: Requirement, facts: HostFacts) -> str:
    """Return why the host does not meet the requirement, "" if it does."""
    matched = dict(_looked_for(requirement, facts))
    if requirement.must == "have":
        missing = [name for name, there in matched.items() if not there]
        return f"the host lacks {', '.join(missing)}" if missing else ""
    present = [there for there in matched.values() if there]
    return f"the host has {', '.join(present)}" if present else ""


def _looked_for(requirement: Requirement, facts: HostFacts) -> Iterator[tuple[str, str]]:
    """Yield each property of the requirement with the name that the host has for it, "" without one."""
    for argument in requirement.kernel_arguments:
        yield argument, argument if argument in facts.kernel_arguments else ""
    if facts.cpu_flags is not None:
        yield from ((flag, flag if flag in facts.cpu_flags else "") for flag in requirement.cpu_flags)
    for pattern in requirement.files:
        paths = [path for path in sorted(facts.files) if matches(pattern, path)]
        if requirement.line:
            paths = [path for path in paths if _has_line(facts.files[path], requirement.line)]
        what = f"{requirement.line} in {pattern}" if requirement.line else pattern
        yield what, f"{requirement.line} in {paths[0]}" if paths and requirement.line else "".join(paths[:1])


def matches(pattern: str, path: str) -> bool:
    """Return whether a path matches. Only the last part of a pattern has wildcards."""
    directory, _, name = pattern.rpartition("/")
    parent, _, last = path.rpartition("/")
    return directory == parent and fnmatchcase(last, name)


def _has_line(content: bytes, line: str) -> bool:
    # TOML and shell-like files allow any blanks around the equals sign.
    wanted = "".join(line.split())
    return any("".join(text.split()) == wanted for text in content.decode(errors="replace").splitlines())
