# SPDX-License-Identifier: Apache-2.0
"""Figures of the documentation as SVG, without a library. Colours follow the reader's preference for light or dark."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from nodeagent.features import NAMES

__all__ = ["architecture", "legs", "rollout", "timeline"]

STYLE = """\
text{font-family:system-ui,-apple-system,'DejaVu Sans',sans-serif;font-size:14px;fill:#1f2328}
.title{font-size:18px;font-weight:600}.small{font-size:12.5px}
.mono{font-family:ui-monospace,'DejaVu Sans Mono',monospace}
.dim{fill:#57606a}.bold{font-weight:600}.inverse{fill:#ffffff}
.ground{fill:#ffffff}.box{fill:#f6f8fa;stroke:#8c959f}.room{fill:#ffffff;stroke:#8c959f}.line{fill:none;stroke:#57606a}
.in{fill:#2a78c2}.out{fill:#c0392b}.rule{stroke:#d0d7de}.head{fill:#57606a}.strong{stroke:#2a78c2}.head2{fill:#2a78c2}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#a3adb8}.inverse{fill:#ffffff}
.ground{fill:#1b1f27}.box{fill:#262c36;stroke:#6b7684}.room{fill:#1b1f27;stroke:#6b7684}.line{stroke:#a3adb8}
.in{fill:#2f7fc9}.out{fill:#c74a3c}.rule{stroke:#3d4550}.head{fill:#a3adb8}.strong{stroke:#6cb0f0}.head2{fill:#6cb0f0}}"""


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{of_kind} text-anchor="{anchor}">{escape(content)}</text>'


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" class="{kind}"/>'


def arrow(path: str, kind: str = "line") -> str:
    end = "end2" if "strong" in kind else "end"
    return f'<path d="{path}" class="{kind}" fill="none" stroke-width="1.6" marker-end="url(#{end})"/>'


def picture(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """``title`` states what the figure shows."""
    tip = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<defs><marker id="end" {tip}><path d="M0 0L8 4L0 8z" class="head"/></marker>',
            f'<marker id="end2" {tip}><path d="M0 0L8 4L0 8z" class="head2"/></marker></defs>',
            f'<rect width="{width}" height="{height}" class="ground"/>',
            text(24, 32, title, "title"),
            *parts,
            "</svg>\n",
        ]
    )


# The timeline of an OS update. `.venv/bin/pytest -s integration/hosts/vm/bench_drained_window.py` measures it: 698 MB,
# a virtual machine without KVM, on a machine with other load. Seconds.
STAGED_IN_SERVICE = 162.0
OUT_OF_SERVICE = 113.6
STAGED_DRAINED = 146.1
REBOOTED = 95.5

# Three changes of a control plane. `make bench-rollout` measures it, here on two cores with other load. The change, its
# seconds, and for each member of etcd that was away: its node, and the seconds at which it went and came back.
Away = tuple[tuple[str, float, float], ...]
ROLLOUT: tuple[tuple[str, float, Away], ...] = (
    ("a change of the kubelet", 39.4, ()),
    ("a new image of etcd", 95.3, (("cp-1", 2.2, 5.9), ("cp-3", 32.9, 36.5), ("cp-2", 67.2, 71.6))),
    ("a rolling reboot", 185.7, (("cp-2", 13.7, 18.8), ("cp-1", 119.1, 121.5), ("cp-3", 164.8, 166.7))),
)


def timeline() -> str:
    left, right, scale = 24, 876, (876 - 24) / 285
    drained = STAGED_DRAINED + REBOOTED
    title = f"The node is out of service for {OUT_OF_SERVICE:.0f} s instead of {drained:.0f} s"
    parts = [text(24, 56, "One OS update of 698 MB, to scale; without the time of a drain", "dim")]
    for second in range(0, 286, 30):
        x = left + second * scale
        parts.append(f'<path d="M{x:.1f} 74V262" class="rule"/>')
        parts.append(text(x, 280, f"{second} s", "small dim", "middle" if second else "start"))
    lanes: Sequence[tuple[str, Sequence[tuple[float, str, str]]]] = (
        ("nodeagent", ((STAGED_IN_SERVICE, "in", "pull and stage"), (OUT_OF_SERVICE, "out", "write, reboot, verify"))),
        ("drain, pull, stage, reboot", ((STAGED_DRAINED, "out", "pull and stage"), (REBOOTED, "out", "reboot"))),
    )
    for row, (name, pieces) in enumerate(lanes):
        top, x = 84 + row * 90, float(left)
        parts.append(text(left, top + 14, name, "bold"))
        for seconds, kind, label in pieces:
            parts.append(rectangle(x, top + 24, seconds * scale - 2, 40, kind))
            parts.append(text(x + seconds * scale / 2, top + 49, f"{label}: {seconds:.0f} s", "inverse", "middle"))
            x += seconds * scale
    for x, kind, label in ((left, "in", "in service"), (left + 130, "out", "out of service")):
        parts += [rectangle(x, 300, 14, 14, kind), text(x + 22, 312, label, "small")]
    parts.append(text(right, 312, "integration/hosts/vm/bench_drained_window.py", "small dim mono", "end"))
    return picture(900, 332, title, parts)


def rollout() -> str:
    """When the member of etcd on each node did not answer, while three changes went through a control plane."""
    left, right = 150, 876
    scale = (right - left) / max(seconds for _, seconds, _ in ROLLOUT)
    parts: list[str] = []
    top = 52.0
    for label, seconds, away in ROLLOUT:
        parts.append(text(24, top + 14, f"{label}: {seconds:.0f} s", "bold"))
        for node in ("cp-1", "cp-2", "cp-3"):
            top += 24
            parts.append(text(left - 10, top + 14, node, "small mono", "end"))
            parts.append(rectangle(left, top, seconds * scale, 18, "in"))
            parts += [
                rectangle(left + begin * scale, top, max(2.0, (end - begin) * scale), 18, "out")
                for name, begin, end in away
                if name == node
            ]
        top += 40
    for x, kind, about in ((24, "in", "etcd answers"), (154, "out", "etcd does not answer")):
        parts += [rectangle(x, top, 14, 14, kind), text(x + 22, top + 12, about, "small")]
    parts.append(text(right, top + 12, "make bench-rollout", "small dim mono", "end"))
    return picture(900, int(top) + 32, "Never more than one of three members of etcd is away", parts)


def feature_lines() -> list[str]:
    """The names of the features, as many on a line as fit."""
    return textwrap.wrap(", ".join(name.replace("_", " ") for name in NAMES), 118)


def architecture() -> str:
    parts: list[str] = []

    def room(x: int, y: int, width: int, height: int, name: str, *about: str, kind: str = "box") -> None:
        parts.append(rectangle(x, y, width, height, kind))
        parts.append(text(x + 12, y + 22, name, "bold mono"))
        parts.extend(text(x + 12, y + 42 + 17 * row, line, "small") for row, line in enumerate(about))

    room(24, 56, 190, 118, "cli/", "one file per command")
    room(314, 56, 562, 118, "agent/", "")
    room(328, 88, 170, 74, "loop.py", "desired against current", kind="room")
    room(512, 88, 170, 74, "update/", "executor and phases", kind="room")
    room(696, 88, 166, 74, "report/", "journal, bus, metrics", kind="room")
    parts += [arrow("M214 115H310"), text(262, 106, "D-Bus", "small dim", "middle")]
    parts += [arrow("M498 125H510"), arrow("M682 125H694")]
    room(24, 226, 852, 84, "features/", *feature_lines())
    for x in (119, 595):
        parts.append(arrow(f"M{x} 174V222"))
    parts.append(text(607, 205, "through doors", "small dim"))
    room(24, 362, 520, 84, "host/", "adapters to this host: systemd, logind, files, users,", "store, rpm-ostree, etcd")
    room(560, 362, 316, 84, "kube/", "adapters to the cluster:", "lease, slots, drain, events")
    for x in (284, 718):
        parts.append(arrow(f"M{x} 310V358"))
    parts.append(text(296, 341, "through ports", "small dim"))
    room(24, 498, 210, 148, "domains/", "areas of a config:", "policy entries, validators,", "checks")
    room(250, 498, 626, 148, "core/", "pure decisions: no clock, no disk, no network")
    for row, name in enumerate(("config", "plan", "update", "report")):
        x = 262 + row * 152
        parts += [rectangle(x, 554, 130, 36, "room"), text(x + 65, 577, name, "mono", "middle")]
        if row:
            parts.append(arrow(f"M{x - 22} 572H{x - 2}"))
    for x, width, name in ((262, 206, "coordination"), (490, 130, "etcd"), (642, 206, "validate")):
        parts += [rectangle(x, 600, width, 34, "room"), text(x + width / 2, 622, name, "mono", "middle")]
    for x in (340, 545, 771):
        parts.append(arrow(f"M{x} 446V494"))
    parts.append(arrow("M234 572H246"))
    parts.append(text(24, 676, "A folder imports folders below it, never above. import-linter checks it.", "small dim"))
    return picture(900, 696, "Decisions are pure; only adapters touch the host and the cluster", parts)


Table = Mapping[tuple[str, str], Iterable[tuple[str, str]]]


def legs(title: str, leg: str, order: Sequence[str], table: Table) -> str:
    """The phases of one leg from top to bottom. Steps forward are on the right, steps back on the left.

    Transitions into another leg are named beside the phase.
    """
    inner = {
        phase: [target for of, target in table[leg, phase] if of == leg] for phase in order if (leg, phase) in table
    }
    phases = list(inner)
    step, width = 76, 132
    rows = {phase: 64 + step * row for row, phase in enumerate(phases)}
    middle = 300
    parts = list(_edges(inner, phases, rows, middle, width))
    for phase, y in rows.items():
        parts += [rectangle(middle - width / 2, y, width, 40, "box"), text(middle, y + 25, phase, "bold", "middle")]
        for line, targets in enumerate(_elsewhere(leg, table[leg, phase])):
            parts.append(text(490, y + 12 + 18 * line, f"→ {targets}", "small"))
    return picture(760, 64 + step * len(phases), title, parts)


def _elsewhere(leg: str, targets: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A line for each other leg. The states at rest need no name of a leg."""
    others: dict[str, set[str]] = {}
    for of, phase in targets:
        others.setdefault(of, set()).add(phase)
    for of, phases in sorted(others.items()):
        if of != leg:
            yield ("" if of == "Rest" else f"{of}: ") + ", ".join(sorted(phases))


def _edges(
    inner: Mapping[str, Sequence[str]],
    phases: Sequence[str],
    rows: Mapping[str, int],
    middle: int,
    width: int,
) -> Iterator[str]:
    places = {phase: place for place, phase in enumerate(phases)}
    for phase in phases:
        for target in sorted(inner[phase], key=places.__getitem__):
            jump = places[target] - places[phase]
            if jump == 1:
                yield arrow(f"M{middle} {rows[phase] + 40}V{rows[target] - 2}", "line strong")
            elif jump:
                side = 1 if jump > 0 else -1
                x = middle + side * width / 2
                bend = x + side * (26 + 26 * abs(jump))
                begin, end = rows[phase] + 20 + side * 6, rows[target] + 20 - side * 6
                yield arrow(f"M{x:g} {begin}C{bend:g} {begin} {bend:g} {end} {x + side * 2:g} {end}")
