# SPDX-License-Identifier: Apache-2.0
"""Whether a config can be applied to a running host, and does not lock the admin out.

The rules are those of the machine-config-operator with one difference: its daemon partly refuses and partly ignores
changes in sections that it does not apply. Here all of them are refused, so that an accepted config is fully applied.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from nodeagent.core.config import unsupported
from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig, UserEntry
from nodeagent.core.validate import ssh_key
from nodeagent.errors import Problem

_INSTALLATION: Final = ("fips", "config.storage.disks", "config.storage.filesystems", "config.storage.luks",
                        "config.storage.raid", "config.ignition")  # fmt: skip

NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})

PATH: Final = f"spec.config.passwd.users[{CORE_USER}]"
_EMPTY: Final = UserEntry(CORE_USER)

_CHARS: Final = "[./0-9A-Za-z]"
# yescrypt and gost-yescrypt, scrypt, bcrypt, sha512crypt, sha256crypt, sha1crypt, SunMD5, md5crypt.
# No salt has a colon or a line break, which end a field and a line of the shadow file.
_METHODS: Final = (
    rf"\$g?y\${_CHARS}+\${_CHARS}{{0,86}}\${_CHARS}{{43}}",
    rf"\$7\${_CHARS}{{11,97}}\${_CHARS}{{43}}",
    rf"\$2[abxy]\$[0-9]{{2}}\${_CHARS}{{53}}",
    rf"\$6\$(?:rounds=[1-9][0-9]+\$)?[^$:\n]{{0,16}}\${_CHARS}{{86}}",
    rf"\$5\$(?:rounds=[1-9][0-9]+\$)?[^$:\n]{{0,16}}\${_CHARS}{{43}}",
    rf"\$sha1\$[1-9][0-9]+\${_CHARS}{{1,64}}\${_CHARS}{{8,64}}{_CHARS}{{32}}",
    rf"\$md5(?:,rounds=[1-9][0-9]+)?\${_CHARS}{{8}}\${{1,2}}{_CHARS}{{22}}",
    rf"\$1\$[^$:\n]{{0,8}}\${_CHARS}{{22}}",
)
_HASH: Final = re.compile("|".join(_METHODS))
# usermod --lock prepends the "!"; "*" marks an account that never had a password.
_LOCKED: Final = re.compile(r"!{0,2}\*?")


def check_reconcilable(
    old: MachineConfig, new: MachineConfig, *, login: bool = True, accepted: Collection[str] = ()
) -> tuple[Problem, ...]:
    """Return the problems that prevent a change from ``old`` to ``new``, sorted by path.

    Without ``login``, the caller checks on the host whether ``core`` can log in. ``accepted`` are names of sections
    that may change, see ``left_out``.
    """
    problems = [
        Problem(f"spec.config.{section}", f"{_verb(old, new, section)}: {unsupported.why(section)}")
        for section in _changed_sections(old, new)
        if not _is_accepted(section, accepted)
    ]
    # One takes the place of the other only if it is gone, so a revert would find what is in the way.
    problems += [
        Problem(
            f"spec.config.storage[{path}]",
            "becomes a directory, or a directory becomes a file: remove the entry with one config, and add it with the "
            "next",
        )
        for path in old.storage.keys() & new.storage.keys()
        if (path in old.directories) != (path in new.directories)
    ]
    problems += [
        Problem(f"{_path_of(name)}.{key}", "is used when the account is created, and does not change afterwards")
        for name in old.users.keys() & new.users.keys()
        for key in _fixed(old.users[name], new.users[name])
    ]
    if old.fips != new.fips:
        was = "on to off" if old.fips else "off to on"
        problems.append(Problem("spec.fips", f"changes from {was}: FIPS mode cannot change on an installed host"))
    # An unchanged user is as the host has it already, so it must not keep other changes away.
    core = new.users.get(CORE_USER)
    if login and core is not None and core != old.users.get(CORE_USER) and not _has_access(core):
        message = f"{CORE_USER} must have at least one SSH key or a password hash, or it is locked out"
        problems.append(Problem(PATH, message))
    return tuple(sorted(problems))


def left_out(
    old: MachineConfig, new: MachineConfig, accepted: Collection[str], present: Collection[str] = ()
) -> Iterator[Problem]:
    """Yield the accepted sections that a change to ``new`` leaves out. The host has those that are ``present``."""
    for section in _changed_sections(old, new):
        if _is_accepted(section, accepted) and section not in present:
            yield Problem(f"spec.config.{section}", f"{_verb(old, new, section)} and is not applied, which is accepted")


def _is_accepted(section: str, accepted: Collection[str]) -> bool:
    # It may be one of several of its name: storage.luks[data].
    return section in accepted or section.partition("[")[0] in accepted


def _changed_sections(old: MachineConfig, new: MachineConfig) -> list[str]:
    sections = old.unapplied.keys() | new.unapplied.keys()
    return sorted(section for section in sections if old.unapplied.get(section) != new.unapplied.get(section))


def _path_of(user: str) -> str:
    return f"spec.config.passwd.users[{user}]"


def _fixed(was: UserEntry, now: UserEntry) -> Iterator[str]:
    """Yield the keys of an account that both configs have and that differ."""
    if was.account is None or now.account is None:
        return
    sides = {
        "homeDir": (was.home, now.home),
        "primaryGroup": (was.group, now.group),
        "uid": (was.account.uid, now.account.uid),
        "gecos": (was.account.gecos, now.account.gecos),
        "shell": (was.account.shell, now.account.shell),
        "noCreateHome": (was.account.create_home, now.account.create_home),
        "noLogInit": (was.account.no_log_init, now.account.no_log_init),
    }
    yield from (key for key, (before, after) in sides.items() if before != after)


def loses_login(old: MachineConfig, new: MachineConfig) -> bool:
    """Return whether ``new`` lacks the last key and password of ``old``. The host may have keys of its own."""
    was, now = old.users.get(CORE_USER), new.users.get(CORE_USER)
    return was is not None and now is None and _has_access(was)


def remedy(problems: Collection[Problem], acceptable: Mapping[str, str] = NO_SETTINGS) -> str:
    """Return the next steps for these problems, each once. ``acceptable``: sections that a setting can accept, and its
    key."""
    paths = [problem.path.removeprefix("spec.") for problem in problems]
    steps = dict.fromkeys(map(_remedy_of, paths))
    by_setting: dict[str, dict[str, None]] = {}
    for path in paths:
        section = path.removeprefix("config.").partition("[")[0]
        if section in acceptable:
            by_setting.setdefault(acceptable[section], {})[section] = None
    accepting = (
        f"{key} with {', '.join(sections)} lets a host keep what it has and apply the rest"
        for key, sections in by_setting.items()
    )
    return "; ".join((*steps, *accepting))


def _remedy_of(path: str) -> str:
    if path == f"config.passwd.users[{CORE_USER}]":
        return f"give {CORE_USER} an SSH key or a password hash"
    if path.startswith(_INSTALLATION):
        return "revert the change, or reinstall the host with it"
    return f"remove the change of {path.removeprefix('config.').partition('[')[0]} from the config"


def _has_access(user: UserEntry) -> bool:
    if any(ssh_key.is_key(key) for key in user.ssh_keys):
        return True
    # A locked hash lets no login in, at the console either.
    return user.password_hash is not None and not is_locked(user.password_hash)


def _verb(old: MachineConfig, new: MachineConfig, section: str) -> str:
    if section not in old.unapplied:
        return "is added"
    return "changes" if section in new.unapplied else "is removed"


def check_access(old: MachineConfig, new: MachineConfig) -> Iterator[Problem]:
    """Yield the problems of keys and of a hash that are not in ``old``."""
    for name, now in new.users.items():
        was = old.users.get(name, _EMPTY)
        # Keys that the host has already are not judged again by the rules of a newer agent.
        for key in now.ssh_keys:
            if key not in was.ssh_keys and (problem := ssh_key.check(key)):
                yield Problem(f"{_path_of(name)}.sshAuthorizedKeys", problem)
        value = now.password_hash
        if value is not None and value != was.password_hash and (problem := hash_problem(value)):
            yield Problem(f"{_path_of(name)}.passwordHash", problem)


def is_locked(value: str) -> bool:
    """Return whether ``value`` deliberately matches no password: shadow(5)."""
    return bool(value) and (value.startswith("!") or value == "*")


def hash_problem(value: str) -> str:
    """Return why ``value`` is not a hash, without quoting it; empty if it is one.

    Password hashes follow the patterns of libxcrypt for each method: crypt(5). The field of the shadow file accepts any
    text, and no password matches a text that is not a hash: a plain password would be stored in the config and still
    not allow a login. Hashes without a prefix (DES) are rejected as well: they are obsolete, and any password of 13
    letters looks like one.
    """
    if _LOCKED.fullmatch(value) or _HASH.fullmatch(value.lstrip("!")):
        return ""
    method = re.match(r"\$[a-z0-9]{1,4}\$", value.lstrip("!"))
    problem = "is an incomplete hash" if method else "is not a password hash; a plain password is not accepted"
    return f"{problem}; mkpasswd --method=yescrypt makes a hash"
