# SPDX-License-Identifier: Apache-2.0
"""Health checks that domains declare: an HTTP answer on loopback, a socket that accepts connections, the
plugins of containerd, and a reload that the program confirms in the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.core.plan.change import KeyChange
from nodeagent.core.plan.domain import Health, HttpHealth, MemberHealth, PluginHealth, ReloadProof, SocketHealth
from nodeagent.core.plan.layers import not_taken_over
from nodeagent.domains.missing_settings import PROC, dotted
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.programs import ProgramLate, run_program

# Seconds for one check. A slower healthz counts as unhealthy.
DEADLINE = 3.0
MEMBER_DEADLINE = 20.0

# Of the host, not of the package.
SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Seconds for the message after the reload. CRI-O takes well under a second.
PATIENCE: Final = 10.0
PERIOD: Final = 0.3

# Characters of the program's message, and bytes of a setting.
LONGEST: Final = 500
# Settings in one message.
SHOWN: Final = 5
log = logging.getLogger(__name__)


class HostHealth:
    """Implements ``ports.HealthChecks``. ``declared`` returns the checks of a unit, as its files are now, and
    ``kept_back`` what they keep back from pods."""

    def __init__(
        self,
        declared: Callable[[str], Awaitable[Sequence[Health]]],
        proof_of: Callable[[str], ReloadProof | None] = lambda _: None,
        kept_back: Callable[[Sequence[KeyChange]], Awaitable[Mapping[str, Decimal]]] | None = None,
        member: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        """``member`` returns what is wrong with the member of etcd on this host, "" if nothing is."""
        self._member = member
        self._declared = declared
        self._proof_of = proof_of
        self._kept_back = kept_back

    async def check(self, unit: str) -> str | None:
        checks = await self._declared(unit)
        if not checks:
            return None
        answers = [await self._problem_of(check) for check in checks]
        return "; ".join(answer for answer in answers if answer)

    async def lasting(self, unit: str) -> bool:
        # containerd reports that it is ready after all plugins, and never starts one again.
        checks = [check for check in await self._declared(unit) if isinstance(check, PluginHealth)]
        return any([await self._problem_of(check, answered=True) for check in checks])

    async def reload_problem(self, unit: str, since: str, keys: Sequence[KeyChange] = ()) -> str | None:
        """Return why the program of ``unit`` rejected its configuration, see ``ports.HealthChecks``."""
        proof, moment = self._proof_of(unit), parse_time(since)
        if proof is None or moment is None:
            return ""
        problem = await reload_problem(proof, moment)
        return await running_problem(proof, keys, SEARCH_PATH) if problem is None and keys else problem

    async def values_problem(self, values: Mapping[str, str]) -> str:
        return await asyncio.to_thread(values_problem, values)

    async def kept_back(self, keys: Sequence[KeyChange]) -> Mapping[str, Decimal]:
        return await self._kept_back(keys) if self._kept_back is not None else {}

    async def _problem_of(self, check: Health, *, answered: bool = False) -> str:
        """Return the problem. With ``answered``, a program that does not answer has none."""
        # A member is queried about the others as well, one of which may not answer.
        limit = MEMBER_DEADLINE if isinstance(check, MemberHealth) else DEADLINE
        try:
            async with asyncio.timeout(limit):
                match check:
                    case MemberHealth():
                        return "" if self._member is None else await self._member()
                    case HttpHealth():
                        return await _http(check.url)
                    case SocketHealth():
                        return await _socket(check.path)
                    case PluginHealth():
                        return await _plugins(check.plugins, answered=answered)
        except TimeoutError:
            return "" if answered else f"no answer within {limit:.0f} s"


def values_problem(values: Mapping[str, str], root: Path = Path("/")) -> str:
    """As ``HostHealth.values_problem``. Blocks."""
    problems = []
    for path, wanted in sorted(values.items()):
        name = path.removeprefix(f"{PROC}/")
        if name == path or ".." in name.split("/"):
            problems.append(f"{path} is no setting of the kernel")
            continue
        try:
            value = read_regular(root / path.lstrip("/"), LONGEST).decode(errors="replace").split()
        except OSError as error:
            problems.append(f"{dotted(name)} cannot be read: {_why(error)}")
            continue
        if value != wanted.split():
            problems.append(f"{dotted(name)} is {' '.join(value)} and not {wanted}")
    return "; ".join(problems[:SHOWN])


async def _http(url: str) -> str:
    parts = urlsplit(url)
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    except OSError as error:
        return f"{url}: {_why(error)}"
    try:
        request = f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.hostname}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        await writer.drain()
        # The status line is enough; the body of a health check has no meaning here.
        words = (await reader.readline()).split(maxsplit=2)
    except OSError as error:
        return f"{url}: {_why(error)}"
    finally:
        await _close(writer)
    if len(words) < 2 or not words[0].startswith(b"HTTP/"):
        return f"{url} does not speak HTTP"
    return "" if words[1] == b"200" else f"{url} answers {words[1].decode('ascii', 'replace')[:3]}"


async def _socket(path: str) -> str:
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        return f"{path}: {_why(error)}"
    await _close(writer)
    return ""


async def _plugins(wanted: Sequence[str], *, answered: bool) -> str:
    program = await asyncio.to_thread(shutil.which, "ctr", path=SEARCH_PATH)
    if program is None:
        return ""
    try:
        status, lines = await run_program(program, ("plugins", "ls"), Path("/"), DEADLINE)
    except (OSError, ProgramLate) as error:
        return "" if answered else f"ctr plugins ls: {str(error) or 'no answer'}"
    if status != 0:
        return "" if answered else f"ctr plugins ls: {lines[-1] if lines else f'status {status}'}"
    return plugin_problems(lines, wanted)


def plugin_problems(lines: Sequence[str], wanted: Sequence[str]) -> str:
    """Return the problem of the output of ``ctr plugins ls``, "" if the plugins that it has are all ok."""
    rows = [words for line in lines if len(words := line.split()) >= 4]
    states = {f"{words[0]}.{words[1]}": words[-1] for words in rows}
    present = {name: states[name] for name in wanted if name in states}
    if not present:
        return f"containerd has none of the plugins {', '.join(wanted)}"
    return ", ".join(f"plugin {name} is in the state {state}" for name, state in present.items() if state != "ok")


def _why(error: OSError) -> str:
    # asyncio replaces strerror by its own sentence.
    return os.strerror(error.errno) if error.errno else str(error)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def reload_problem(proof: ReloadProof, since: float, program: str = "journalctl") -> str | None:
    """Return the program's error, "" if it took the configuration over, None if it logged neither.

    ``since`` is in seconds since the epoch. A program may log errors only, so None is no failure.
    """
    unit = f"_SYSTEMD_UNIT={proof.unit}"
    arguments = ("--quiet", "--no-pager", "--boot", "--output=cat", f"--since=@{since:.3f}", unit)
    clock = asyncio.get_running_loop().time
    until = clock() + PATIENCE
    while True:
        try:
            status, lines = await run_program(program, arguments, Path("/"), PATIENCE)
        except (OSError, ProgramLate) as error:
            log.warning("the journal of %s could not be read: %s", proof.unit, error)
            return None
        problem = read_result(proof, lines) if status == 0 else None
        if problem is not None or clock() >= until:
            return problem
        await asyncio.sleep(PERIOD)


async def running_problem(proof: ReloadProof, keys: Sequence[KeyChange], search_path: str) -> str | None:
    """As ``reload_problem``, by the configuration with which the program runs."""
    name, *arguments = proof.running or ("",)
    program = await asyncio.to_thread(shutil.which, name, path=search_path) if name else None
    if program is None:
        return None
    try:
        status, lines = await run_program(program, arguments, Path("/"), DEADLINE)
    except (OSError, ProgramLate) as error:
        log.warning("%s does not print its configuration: %s", program, error)
        return None
    return not_taken_over("\n".join(lines).encode(), keys) if status == 0 else None


def read_result(proof: ReloadProof, lines: Sequence[str]) -> str | None:
    """Return the last result in ``lines``, as ``reload_problem`` does."""
    for line in reversed(lines):
        if proof.failed in line:
            return line[line.index(proof.failed) :].rstrip('"')[:LONGEST]
        if proof.done in line:
            return ""
    return None
