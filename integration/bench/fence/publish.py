# SPDX-License-Identifier: Apache-2.0
"""Write the result of a run into ``docs/research/fence.md``: its table between two markers, its figure as a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from integration.bench.fence.table import others, table

__all__ = ["markdown", "publish", "replaced"]

DOCS = Path(__file__).parents[3] / "docs/research"
PAGE = "fence.md"


def publish(name: str, result: Mapping[str, Any], drawn: str, titles: Mapping[str, str]) -> None:
    """``name``: of the markers and, with ``.svg``, of the picture."""
    page = DOCS / PAGE
    page.write_text(replaced(page.read_text(), name, markdown(result, titles)))
    (DOCS / f"{name}.svg").write_text(drawn)


def markdown(result: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """The verdict, what was measured on, the variants, and which aims were reached."""
    phases, disk, load = result["phases"], result["disk"], result["load"]
    speed = "as fast as it is" if disk is None else f"{disk['iops']} IOPS and {disk['bytes_per_second'] / 1e6:g} MB/s"
    waited = [phase["noise"]["host_waited"] for phase in phases]
    stolen = [phase["noise"]["host_stolen"] for phase in phases]
    loads = [phase["noise"]["host_loadavg"] for phase in phases]
    rounds = sorted({row["rounds"] for row in result["variants"].values()})
    times = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else f"{rounds[0]}"
    disturbed = ", ".join(f"{phase['variant']} of round {phase['round'] + 1}" for phase in result["disturbed"])
    lines = [
        f"**{result['verdict'].capitalize()}**"
        + (": " + "; ".join(result["doubts"]) + "." if result["doubts"] else "."),
        "",
        f"{result['filesystem']}, kernel {result['kernel']}, {speed}; {load['bytes'] / 1e6:.0f} MB in {load['files']} "
        f"files a staging; {times} round(s). Load of the machine "
        f"{min(loads):.1f} to {max(loads):.1f} on {result['processors']} processors; QEMU waited for one "
        f"{min(waited):.0%} to {max(waited):.0%} of the time, and the machine did not get {min(stolen):.0%} to "
        f"{max(stolen):.0%} of the time that it requested from its own host."
        + (f" Left out, for it had no time for the guest then: {disturbed}." if disturbed else ""),
        "",
        table(result["variants"], titles),
        others(result["variants"]),
    ]
    if by_fence := result["aims"]:
        words = {True: "kept", False: "not kept", None: "cannot be said"}
        lines += [f"| aim | at most | {' | '.join(by_fence)} |", "|---|---|" + "---|" * len(by_fence)]
        for name, first in next(iter(by_fence.values())).items():
            reached = (f"{aims[name]['reached']}: {words[aims[name]['kept']]}" for aims in by_fence.values())
            lines.append(f"| {name} | {first['aim']:g} | {' | '.join(reached)} |")
        lines.append("")
    return "\n".join(lines)


def replaced(text: str, name: str, content: str) -> str:
    """``text`` with this between the markers of that name; ``ValueError`` if they are not there."""
    begin, end = f"<!-- begin measured: {name} -->", f"<!-- end measured: {name} -->"
    before, opened, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise ValueError(f"no markers for {name}")
    return f"{before}{begin}\n\n{content.strip()}\n\n{end}{after}"
