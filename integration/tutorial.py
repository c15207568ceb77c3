# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/tutorial.md, run on a test host: ``python -m integration.tutorial`` writes their output into it.

A command is an indented line that begins with ``node#``; the indented lines below it, up to the next command or the end
of the block, are its output. A comment ``reboots`` stands above a command that reboots the host.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from integration.demo import CONFIGS, Story, prepare
from integration.demo_shell import boot
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.container_host import Host
from integration.hosts.errors import CommandFailed

PAGE = Path(__file__).resolve().parent.parent / "docs/tutorial.md"
PROMPT = "    node# "
REBOOTS = "<!-- reboots -->"
TIMEOUT = 60.0
VARIABLE = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z|\d\d:\d\d:\d\d", "TIME"),
    (r"\n    TIME  .*", ""),  # a step is shown only if it lasts
    (r"\b([0-9a-f]{32}|[0-9a-f]{8})\b", "ID"),
    (r"(\d+(\.\d+)? (s|min)( \d+ s)?( ago)?|just now)\b", "DURATION"),
    (r" +", " "),  # the width of a column follows its content
)


def performed(host: Host, page: str) -> str:
    """Run the commands of ``page``, and return the page with their output."""
    return "\n".join(_performed(host, page.splitlines())) + "\n"


def _performed(host: Host, lines: list[str]) -> Iterator[str]:
    after_command = reboots = False
    for line in lines:
        if line.startswith(PROMPT):
            if after_command:
                yield ""
            yield line
            yield from _output(host, line.removeprefix(PROMPT), reboots)
            after_command, reboots = True, False
        elif line and not line.startswith("    "):  # the prose after a block
            if after_command:
                yield ""
            yield line
            after_command, reboots = False, line == REBOOTS
        elif not after_command:
            yield line


def _output(host: Host, command: str, reboots: bool) -> Iterator[str]:
    argv = ["bash", "-c", f"cd {CONFIGS}; {command}"]
    if reboots:
        with host.rebooting(TIMEOUT):
            done = host.run(argv, check=False, timeout=TIMEOUT)
        host.wait_for(lambda: _at_rest(host), "the update has ended", TIMEOUT)
    else:
        done = host.run(argv, check=False, timeout=TIMEOUT)
    yield from (f"    {line}".rstrip() for line in (done.stdout + done.stderr).splitlines())


def _at_rest(host: Host) -> bool:
    try:
        return agent.status(host)["phase"] in ("Idle", "Degraded")
    except CommandFailed:
        return False


def stable(page: str) -> str:
    """The page without times, durations and ids."""
    for pattern, word in VARIABLE:
        page = re.sub(pattern, word, page)
    return page


def main() -> int:
    image = prepare(Story())
    try:
        with Host(image) as host:
            boot(host)
            page = PAGE.read_text()
            after = performed(host, page)
    finally:
        image.close()
    if stable(after) != stable(page):
        PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
