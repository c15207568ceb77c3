# SPDX-License-Identifier: Apache-2.0
"""Files that their program leaves out because of their owner, mode or name. Nothing but its log shows that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.core.plan.diff import differing
from nodeagent.core.plan.domain import owns
from nodeagent.errors import Problem


class Readership(NamedTuple):
    """``program`` reads the files of ``pattern`` (as in ``Domain``) if their mode has none of the bits ``forbidden``,
    and, with ``of_root``, if they belong to root."""

    pattern: str
    program: str
    forbidden: int
    of_root: bool = True


READERS: Final = (
    # nms-keyfile-utils.c of NetworkManager. A file without a mode in the config has 0644.
    Readership("/etc/NetworkManager/system-connections/", "NetworkManager", 0o077),
    # authfile.c of OpenSSH, for a key of root.
    Readership("/etc/ssh/ssh_host_*_key", "sshd", 0o077, of_root=False),
    Readership("/root/.ssh/id_*", "ssh", 0o077, of_root=False),
    # cron(8) and logrotate(8), of Fedora and of Debian.
    Readership("/etc/cron.d/", "cron", 0o022),
    Readership("/etc/crontab", "cron", 0o022),
    Readership("/etc/logrotate.d/", "logrotate", 0o022),
    # sudoers(5). visudo is run over copies, which have neither.
    Readership("/etc/sudoers", "sudo", 0o002),
    Readership("/etc/sudoers.d/", "sudo", 0o002),
)


# Public keys of a user, by either path of the directory.
KEYS: Final = re.compile(r"(?:/root|(?:/var)?/home/(?P<user>[^/]+))/\.ssh/authorized_keys")

# Directories, the ends of the names that their program reads, and the program.
NAMED: Final = {
    "/etc/sysctl.d": ((".conf",), "systemd-sysctl"),
    "/etc/modules-load.d": ((".conf",), "systemd-modules-load"),
    "/etc/tmpfiles.d": ((".conf",), "systemd-tmpfiles"),
    "/etc/sysusers.d": ((".conf",), "systemd-sysusers"),
    "/etc/binfmt.d": ((".conf",), "systemd-binfmt"),
    "/etc/modprobe.d": ((".conf",), "modprobe"),
    "/etc/udev/rules.d": ((".rules",), "udev"),
    "/etc/systemd/network": ((".network", ".netdev", ".link"), "systemd-networkd"),
    "/etc/NetworkManager/conf.d": ((".conf",), "NetworkManager"),
    "/etc/ssh/sshd_config.d": ((".conf",), "sshd"),
    "/etc/containers/registries.conf.d": ((".conf",), "the container runtime"),
    "/etc/containers/registries.d": ((".yaml",), "the container runtime"),
    "/etc/security/limits.d": ((".conf",), "pam_limits"),
    "/etc/audit/rules.d": ((".rules",), "augenrules"),
    "/etc/dracut.conf.d": ((".conf",), "dracut"),
}
# Of systemd's own files: journald.conf.d and the like.
OF_SYSTEMD: Final = re.compile(r"/etc/systemd/[a-z-]+\.conf\.d")


def skipped(path: str) -> str:
    """Return why the program of a directory leaves out a file of this name, "" if it does not."""
    directory, _, name = path.rpartition("/")
    if name.startswith("README"):
        return ""
    if directory == "/etc/sudoers.d":
        # sudoers(5), also for the endings of editors and packages.
        return "is left out by sudo: its name has a dot or ends with ~" if "." in name or name.endswith("~") else ""
    ends, program = NAMED.get(directory, ((), ""))
    if OF_SYSTEMD.fullmatch(directory):
        ends, program = (".conf",), "systemd"
    if not ends or name.endswith(ends):
        return ""
    return f"is left out by {program}: its name has to end with {' or '.join(ends)}"


def ignored(old: MachineConfig, new: MachineConfig) -> Iterator[Problem]:
    """Find changed files of ``new`` that their program would leave out."""
    tops = tuple({reader.pattern.partition("*")[0] for reader in READERS})
    for path in differing(old.files, new.files):
        if (home := KEYS.fullmatch(path)) and (problem := _unread_keys(home["user"] or "root", new.files[path])):
            yield Problem(path, problem)
        if not path.startswith(tops):
            continue
        for reader in READERS:
            if _matches(reader.pattern, path) and (problem := _why(reader, new.files[path])):
                yield Problem(path, problem)
                break


def _matches(pattern: str, path: str) -> bool:
    if path.rpartition("/")[2].startswith(".") or path.endswith((".pub", "~")):
        return False
    before, star, after = pattern.partition("*")
    if not star:
        return owns(pattern, path)
    return path.startswith(before) and path.endswith(after) and "/" not in path.removeprefix(before)


def _unread_keys(user: str, entry: FileEntry) -> str:
    """Return why sshd cannot use a file of public keys of ``user``: auth2-pubkeyfile.c, with StrictModes."""
    if entry.mode & 0o022:
        return f"has mode 0{entry.mode:03o}, so that sshd ignores it: give it 0600 (384 in JSON)"
    owner = "root" if entry.user == 0 else entry.user
    # The account of a number is not known here.
    if isinstance(owner, int) or owner == user:
        return ""
    if owner != "root":
        return f"belongs to {owner}, so that sshd ignores it: it must belong to {user}"
    # A group may have the user.
    if entry.mode & 0o004 or (entry.mode & 0o040 and entry.group not in (0, "root")):
        return ""
    return f"belongs to root and has mode 0{entry.mode:03o}, and sshd reads it as {user}: it must belong to {user}"


def _why(reader: Readership, entry: FileEntry) -> str:
    if reader.of_root and entry.user not in (0, "root"):
        return f"belongs to {entry.user}, so that {reader.program} ignores it: it must belong to root"
    # sshd of Fedora lets the group ssh_keys read its keys.
    grouped = reader.program == "sshd" and entry.group not in (0, "root") and not entry.mode & 0o037
    if entry.mode & reader.forbidden and not grouped:
        needed = "0600 (384 in JSON)" if reader.forbidden == 0o077 else f"0{entry.mode & ~reader.forbidden:03o}"
        return f"has mode 0{entry.mode:03o}, so that {reader.program} ignores it: give it {needed}"
    return ""
