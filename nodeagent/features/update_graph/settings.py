# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from nodeagent.settings.cluster import OptionalPath
from nodeagent.settings.part import Contradiction, Part
from nodeagent.settings.schema import Settings

# With a query, because servers of update graphs need the stream and the architecture.
# Only https: the answer decides which versions may be skipped.
GraphUrl = Annotated[
    str,
    Meta(
        pattern=r"^(https://[^\s@#\x00-\x1f]+)?$",
        max_length=2048,
        description='an address as in https://host/v1/graph?stream=stable, or ""',
    ),
]


class GraphSettings(Part, frozen=True, forbid_unknown_fields=True):
    """The update graph of a Cincinnati server, which knows versions that no update may skip.

    ``url``: whole address of the graph, with its query; "" for none.

    ``ca``: PEM file with the certificate authority of the server; "" for the authorities of the host.

    ``on_unreachable``: what to do if the server does not answer. hold: the update of the OS waits, because a skipped
    version may leave a host that does not boot. go: it begins with a warning.
    """

    group = "graph"

    url: GraphUrl = ""
    ca: OptionalPath = ""
    on_unreachable: Literal["hold", "go"] = "hold"

    def contradictions(self, settings: Settings) -> Iterator[Contradiction]:  # noqa: ARG002
        if self.ca and not self.url:
            yield ("graph.ca", "graph.url"), "graph.ca needs graph.url: without it no server is called"
