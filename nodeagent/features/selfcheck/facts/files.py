# SPDX-License-Identifier: Apache-2.0
"""Files of the package and of the agent, their labels, and the message catalog. All functions but ``read_catalog``
block."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from nodeagent.core.self_check import NotRead
from nodeagent.features.selfcheck.decide.files import FileKind, PathFacts
from nodeagent.host.fs.selinux import Labels, policy_label
from nodeagent.host.proc import label_of
from nodeagent.host.programs import NotStarted, ProgramLate, run_program

MANIFEST: Final = "/usr/lib/nodeagent/manifest"
# Bytes. The manifest has 200 KB.
_MAX_MANIFEST: Final = 4 << 20
# Seconds. journalctl reads one file.
_CATALOG_TIMEOUT: Final = 20.0
_MESSAGE_ID: Final = re.compile(r"[0-9a-f]{32}")
_KINDS: Final = ((stat.S_ISREG, FileKind.FILE), (stat.S_ISDIR, FileKind.DIRECTORY), (stat.S_ISLNK, FileKind.LINK))


def read_path(path: str, root: Path = Path("/")) -> PathFacts | NotRead | None:
    """Return None for a path that does not exist. Links are not followed."""
    try:
        info = os.lstat(root / path.lstrip("/"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        return NotRead(f"only root may read {path}", "run it as root")
    except OSError as error:
        return NotRead(f"{path}: {error.strerror}", "check the file system", fault=True)
    kind = next((kind for is_kind, kind in _KINDS if is_kind(info.st_mode)), FileKind.OTHER)
    return PathFacts(path, kind, info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode))


def read_manifest(root: Path = Path("/")) -> Mapping[str, PathFacts | None] | NotRead:
    """Return the files of the package, with None for those that are missing."""
    try:
        with (root / MANIFEST[1:]).open("rb") as file:
            names = file.read(_MAX_MANIFEST).decode().splitlines()
    except FileNotFoundError:
        # rpm keeps its own list, and a wheel has none.
        return NotRead("the package has no list of its files", "rpm --verify nodeagent, if it is an RPM")
    except (OSError, UnicodeDecodeError) as error:
        return NotRead(f"{MANIFEST} cannot be read: {error}", "install the package again", fault=True)
    listed: dict[str, PathFacts | None] = {}
    for name in names:
        facts = read_path(f"/{name}", root)
        if isinstance(facts, NotRead):
            return facts
        listed[f"/{name}"] = facts
    return listed


def read_labels(paths: Sequence[str], *, enabled: bool | None = None) -> Sequence[PathFacts] | NotRead:
    """Return the paths that exist, with their labels and those of the policy."""
    labels = Labels(enabled)
    if not labels.enabled:
        return NotRead("not applicable: SELinux is not enabled on this host")
    labelled: list[PathFacts] = []
    for path in paths:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError as error:
            return NotRead(f"{path}: {error.strerror}", "run it as root")
        try:
            mode = os.fstat(descriptor).st_mode
            label = labels.read(descriptor) or ""
        except OSError as error:
            return NotRead(f"the label of {path}: {error.strerror}", "run it as root")
        finally:
            os.close(descriptor)
        labelled.append(PathFacts(path, "", label=label, wanted=policy_label(path, mode) or ""))
    # Equal labels would be reported for all paths, although none was compared.
    if not any(facts.wanted for facts in labelled):
        return NotRead("the policy names no label: libselinux or its file contexts are missing")
    return labelled


def read_domain(pid: int, *, enabled: bool | None = None, proc: Path = Path("/proc")) -> str | NotRead:
    """Return the label of a process; ``pid`` is 0 if the daemon does not run."""
    if not Labels(enabled).enabled:
        return NotRead("not applicable: SELinux is not enabled on this host")
    if not pid:
        return NotRead("the daemon does not run", "systemctl start nodeagent")
    try:
        return label_of(pid, proc)
    except OSError as error:
        return NotRead(f"the domain of process {pid}: {error.strerror}", "run it as root")


async def read_catalog(ids: Collection[str], program: str = "journalctl") -> Collection[str] | NotRead:
    """Return those of the message ids that journalctl finds."""
    try:
        # It prints a line for each id that it finds, and fails if one is missing.
        _, lines = await run_program(program, ["--list-catalog", *ids], Path("/"), _CATALOG_TIMEOUT)
    except FileNotFoundError:
        return NotRead("journalctl is not installed")
    except NotStarted as error:
        return NotRead(error.message, "try again when the host has free processes and memory")
    except ProgramLate as error:
        return NotRead(f"journalctl: {error}", "journalctl --update-catalog", fault=True)
    except OSError as error:
        return NotRead(f"journalctl: {error.strerror}", "journalctl --update-catalog", fault=True)
    identifiers = {line.partition(" ")[0] for line in lines}
    return {identifier for identifier in identifiers if _MESSAGE_ID.fullmatch(identifier)}
