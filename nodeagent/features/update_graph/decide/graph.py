# SPDX-License-Identifier: Apache-2.0
"""The update graph of the Cincinnati protocol.

https://github.com/openshift/cincinnati/blob/master/docs/design/cincinnati.md

The graph of Fedora CoreOS marks barriers and dead ends in the metadata of its releases. Its edges also express how far
a rollout has come, which does not matter for an image that an admin chose. Other graphs have no such marks, so there an
update has to be an edge.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.features.update_graph.decide.declared import Barrier
from nodeagent.features.update_graph.decide.release import VERSION, Release, version_key

# A stream of Fedora CoreOS has about two hundred releases, a channel of OpenShift a thousand edges.
MAX_RELEASES: Final = 5000
MAX_EDGES: Final = 200_000
MAX_TEXT: Final = 300

_MARKS: Final = "org.fedoraproject.coreos."
_BARRIER: Final = "org.fedoraproject.coreos.updates.barrier"
_DEAD_END: Final = "org.fedoraproject.coreos.updates.deadend"


@dataclass(frozen=True, slots=True)
class GraphRelease:
    """``content`` is a digest or checksum, "" if the payload has none. ``dead_end`` is the reason, "" for none."""

    version: str
    content: str
    dead_end: str = ""


@dataclass(frozen=True, slots=True)
class UpdateGraph:
    """``edges`` by the index of their release. ``marked``: barriers count, and edges do not."""

    releases: tuple[GraphRelease, ...]
    edges: Mapping[int, tuple[int, ...]]
    barriers: tuple[Barrier, ...] = ()
    marked: bool = False

    def find(self, release: Release) -> int | None:
        """Return the index of a release: by its content, else by its version, which a derived image keeps."""
        # A derived image has another digest and keeps the version, so both are compared, the exact one first.
        for index, candidate in enumerate(self.releases):
            if candidate.content and candidate.content in release.contents:
                return index
        for index, candidate in enumerate(self.releases):
            if release.version and candidate.version == release.version:
                return index
        return None


def parse_graph(data: Mapping[str, Any]) -> UpdateGraph:
    """Return the graph of an answer. Raises ``ValueError``."""
    nodes, edges = data.get("nodes"), data.get("edges")
    if not isinstance(nodes, list) or not isinstance(edges, list):
        raise ValueError("the answer is no update graph")  # noqa: TRY004 - one kind of error for all findings
    if len(nodes) > MAX_RELEASES or len(edges) > MAX_EDGES:
        raise ValueError(f"the graph has {len(nodes)} releases and {len(edges)} edges, which is too many")
    releases: list[GraphRelease] = []
    barriers: list[Barrier] = []
    marked = False
    for node in nodes:
        release, metadata = _release(node)
        releases.append(release)
        marked = marked or any(key.startswith(_MARKS) for key in metadata)
        if metadata.get(_BARRIER) == "true":
            barriers.append(Barrier(release.version, metadata.get(f"{_BARRIER}_reason", "")[:MAX_TEXT]))
    # Barriers and rules name a release by its version, which has to be one release then.
    if len({release.version for release in releases}) != len(releases):
        raise ValueError("two releases of the graph have the same version")
    leads: dict[int, list[int]] = {}
    for edge in edges:
        start, end = _edge(edge, len(releases))
        leads.setdefault(start, []).append(end)
    return UpdateGraph(tuple(releases), {key: tuple(ends) for key, ends in leads.items()}, tuple(barriers), marked)


def _release(node: object) -> tuple[GraphRelease, Mapping[str, str]]:
    if not isinstance(node, dict):
        raise ValueError("a release of the graph is no object")  # noqa: TRY004
    version, payload, metadata = node.get("version"), node.get("payload"), node.get("metadata")
    if not isinstance(version, str) or re.fullmatch(VERSION, version) is None or not isinstance(payload, str):
        raise ValueError("a release of the graph has no version, or no payload")
    if not isinstance(metadata, dict):
        raise ValueError(f"the release {version} of the graph has no metadata")  # noqa: TRY004
    texts = {str(key): value for key, value in metadata.items() if isinstance(value, str)}
    dead_end = (
        (texts.get(f"{_DEAD_END}_reason", "") or "no reason")[:MAX_TEXT] if texts.get(_DEAD_END) == "true" else ""
    )
    # A payload is the pull spec of an image with a digest, or the checksum of a commit.
    return GraphRelease(version, payload.rpartition("@")[2], dead_end), texts


def _edge(edge: object, releases: int) -> tuple[int, int]:
    match edge:
        # A negative index would be one from the end in Python.
        case [int(start), int(end)] if 0 <= start < releases and 0 <= end < releases:
            return start, end
        case _:
            raise ValueError("an edge of the graph is no pair of releases")


def first_hop(graph: UpdateGraph, start: int, end: int) -> int | None:
    """Return the first release on a shortest way from ``start`` to ``end``, None without a way.

    Of several, the newest. A dead end is never on the way.
    """
    # Backwards, so that one search gives the distance of each release that ``start`` leads to.
    before: dict[int, list[int]] = {}
    for origin, ends in graph.edges.items():
        if not graph.releases[origin].dead_end:
            for successor in ends:
                before.setdefault(successor, []).append(origin)
    distance, queue = {end: 0}, deque([end])
    while queue:
        at = queue.popleft()
        for origin in before.get(at, ()):
            if origin not in distance:
                distance[origin] = distance[at] + 1
                queue.append(origin)
    if start not in distance:
        return None
    # As Zincati does, which takes the newest release that the graph offers.
    hops = [successor for successor in graph.edges.get(start, ()) if distance.get(successor, -1) == distance[start] - 1]
    return max(hops, key=lambda successor: version_key(graph.releases[successor].version), default=None)


def rejection_of(data: Mapping[str, Any]) -> str:
    """Return the words of an error of the protocol, "" without them."""
    words = [value for key in ("kind", "value") if isinstance(value := data.get(key), str)]
    return ": ".join(words)[:MAX_TEXT]
