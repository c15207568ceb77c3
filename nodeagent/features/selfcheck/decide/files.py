# SPDX-License-Identifier: Apache-2.0
"""Judge the files of the package, the directories that it needs, their labels, and the message catalog."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.enumerated import enumerated
from nodeagent.core.self_check import NotRead, SelfCheck, failed, ok, skipped, unread

FILE_CHECKS: Final = ("files.package", "files.directories", "state.directory", "state.store")
# systemd-tmpfiles makes these; the agent watches them, and admins write to them.
DIRECTORIES: Final = (
    "/etc/nodeagent",
    "/etc/nodeagent/config.d",
    "/run/nodeagent",
    "/run/nodeagent/config.d",
    "/run/motd.d",
)
# Paths whose label decides whether an enforcing host starts the agent, and lets it keep its state.
LABELLED: Final = (
    "/usr/bin/nodeagent",
    "/usr/lib/nodeagent",
    "/usr/lib/nodeagent/bin/python3",
    "/usr/lib/systemd/system/nodeagent.service",
    "/etc/nodeagent",
)

# Of the SELinux module in the package.
DOMAIN: Final = "nodeagent_t"
PROGRAM_TYPE: Final = "nodeagent_exec_t"

# The group counts as well: the package has no group whose members are as trusted as root.
_WRITABLE_BY_OTHERS: Final = 0o022
_TMPFILES: Final = "systemd-tmpfiles --create"


class FileKind:
    """Values of ``PathFacts.kind``."""

    FILE: Final = "file"
    DIRECTORY: Final = "directory"
    LINK: Final = "link"
    OTHER: Final = "special file"


@dataclass(frozen=True, slots=True)
class PathFacts:
    """A path of the host, not followed if it is a link. ``label`` is "" without one; ``wanted`` is the label that the
    policy assigns, "" if it assigns none."""

    path: str
    kind: str
    uid: int = 0
    gid: int = 0
    mode: int = 0o755
    label: str = ""
    wanted: str = ""


# A path that does not exist, and a path that cannot be read.
PathOrUnread = PathFacts | NotRead | None


@dataclass(frozen=True, slots=True)
class FileFacts:
    """``package`` has each file of the package, with None for a missing one. ``state`` is the directory of the store,
    and both have their path with them, because a setting names it."""

    package: Mapping[str, PathFacts | None] | NotRead
    directories: Mapping[str, PathOrUnread]
    state: tuple[str, PathOrUnread]
    store: tuple[str, PathOrUnread]


def file_checks(facts: FileFacts | NotRead, *, booted: bool, running: bool) -> Iterator[SelfCheck]:
    """``booted``: systemd runs, so that the directories in memory must exist. ``running``: the daemon runs, so that its
    state must exist."""
    if isinstance(facts, NotRead):
        yield from (unread(name, facts) for name in FILE_CHECKS)
        return
    yield unread("files.package", facts.package) if isinstance(facts.package, NotRead) else _package(facts.package)
    yield _directories(facts.directories, booted=booted)
    yield _private("state.directory", *facts.state, FileKind.DIRECTORY, 0o700, running=running)
    yield _private("state.store", *facts.store, FileKind.FILE, 0o600, running=running)


def _package(listed: Mapping[str, PathFacts | None]) -> SelfCheck:
    name, again = "files.package", "install the package again"
    if missing := [path for path, facts in listed.items() if facts is None]:
        return failed(name, f"missing: {enumerated(missing)}", again)
    present = [facts for facts in listed.values() if facts is not None]
    # Links have no mode of their own.
    if unsafe := [
        facts.path
        for facts in present
        if facts.uid != 0 or (facts.kind != FileKind.LINK and facts.mode & _WRITABLE_BY_OTHERS)
    ]:
        return failed(name, f"users other than root can change {enumerated(unsafe)}", again)
    return ok(name, f"{len(listed)} files are in place")


def _directories(directories: Mapping[str, PathOrUnread], *, booted: bool) -> SelfCheck:
    name = "files.directories"
    # systemd-tmpfiles makes those in memory at boot, so the build of an image has none.
    needed = {path: facts for path, facts in directories.items() if booted or not path.startswith("/run/")}
    if faults := [facts for facts in needed.values() if isinstance(facts, NotRead)]:
        return unread(name, faults[0])
    if missing := [path for path, facts in needed.items() if facts is None]:
        return failed(name, f"missing: {enumerated(missing)}", _TMPFILES)
    present = [facts for facts in needed.values() if isinstance(facts, PathFacts)]
    for facts in present:
        if facts.kind != FileKind.DIRECTORY:
            return failed(name, f"{facts.path} is a {facts.kind}, not a directory", f"remove it, then {_TMPFILES}")
        if facts.uid != 0 or facts.mode & _WRITABLE_BY_OTHERS:
            message = f"users other than root can change {facts.path} (owner {facts.uid}, mode {facts.mode:04o})"
            return failed(name, message, f"chown root:root {facts.path} && chmod 0755 {facts.path}")
    return ok(name, f"{len(present)} directories are in place")


def _private(name: str, path: str, facts: PathOrUnread, kind: str, mode: int, *, running: bool) -> SelfCheck:
    if isinstance(facts, NotRead):
        return unread(name, facts)
    if facts is None:
        if running:
            return failed(name, f"{path} does not exist although the daemon runs", "systemctl restart nodeagent")
        return skipped(name, f"{path} does not exist: the first start makes it", "systemctl start nodeagent")
    if facts.kind != kind:
        return failed(name, f"{path} is a {facts.kind}, not a {kind}", "move it away, then restart nodeagent")
    if (facts.uid, facts.gid) != (0, 0):
        return failed(name, f"{path} belongs to {facts.uid}:{facts.gid}, not to root", f"chown root:root {path}")
    # Fewer permissions are no fault: root needs none.
    if facts.mode & ~mode:
        return failed(name, f"{path} has mode {facts.mode:04o}: it is for root only", f"chmod {mode:04o} {path}")
    return ok(name, f"{path} is for root only")


def label_check(paths: Sequence[PathFacts] | NotRead) -> SelfCheck:
    """Compare the types of the labels only."""
    # User, role and range differ between policies, and a relabelling leaves them.
    name = "selinux.labels"
    if isinstance(paths, NotRead):
        return unread(name, paths)
    wrong = [facts for facts in paths if facts.wanted and _type(facts.label) != _type(facts.wanted)]
    if not wrong:
        return ok(name, f"{len(paths)} paths have the labels of the policy")
    shown = enumerated(f"{path.path} ({_type(path.label) or 'none'}, not {_type(path.wanted)})" for path in wrong)
    remedy = f"restorecon -RF {' '.join(path.path for path in wrong)}; files of an image get theirs in its build"
    return failed(name, f"labels differ from the policy: {shown}", remedy)


def domain_check(label: str | NotRead, paths: Sequence[PathFacts] | NotRead) -> SelfCheck:
    """``label`` is that of the daemon's process. Its module is loaded if the policy gives the program a type for it."""
    name = "selinux.domain"
    if isinstance(label, NotRead):
        return unread(name, label)
    domain = _type(label)
    if domain == DOMAIN:
        return ok(name, f"the daemon runs in {domain}")
    wanted = () if isinstance(paths, NotRead) else (_type(facts.wanted) for facts in paths)
    if PROGRAM_TYPE in wanted:
        remedy = "restorecon -RF /usr/bin/nodeagent, then systemctl restart nodeagent"
        return failed(name, f"the daemon runs in {domain}, although the policy has {DOMAIN}", remedy)
    return ok(name, f"the daemon runs in {domain}: the policy of this host does not have the module of nodeagent")


def _type(label: str) -> str:
    parts = label.split(":")
    return parts[2] if len(parts) > 2 else ""


def catalog_check(listed: Collection[str] | NotRead, expected: Collection[str]) -> SelfCheck:
    """``listed`` are the message ids of nodeagent that journalctl finds in the catalog."""
    name = "journal.catalog"
    if isinstance(listed, NotRead):
        return unread(name, listed)
    if missing := sorted(set(expected) - set(listed)):
        message = f"journalctl finds {len(expected) - len(missing)} of {len(expected)} entries, not {missing[0]}"
        return failed(name, message, "journalctl --update-catalog")
    return ok(name, f"journalctl explains {len(expected)} messages")
