# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import BackendHost, Base, Door, Feature
from nodeagent.features.cluster.reasons import ClusterReason
from nodeagent.features.cluster.settings import NodeDrainSettings
from nodeagent.features.cluster.view import STATUS, VIEWS
from nodeagent.update.ports.coordination import Backend


def _backend(host: BackendHost) -> Backend | None:
    if host.api is None:
        return None
    from nodeagent.features.cluster.backend import backend_of

    return backend_of(host, host.api)


def _open(base: Base) -> Feature:
    if base.backend is None:
        return Feature()
    from nodeagent.features.cluster.host import join

    return join(base)


DOOR: Final = Door(
    title="Node in a cluster",
    page="usage/cluster.md",
    settings=(NodeDrainSettings,),
    reasons=ClusterReason,
    events=VIEWS,
    status=STATUS,
    backend=_backend,
    open=_open,
)
