# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nodeagent.core.plan.change import Plan
from nodeagent.door import Base, Door, Feature
from nodeagent.errors import InvalidInput
from nodeagent.features.busy_pods.events import STATUS, VIEWS
from nodeagent.features.busy_pods.reasons import BusyReason
from nodeagent.features.busy_pods.settings import BusyPodSettings
from nodeagent.settings.schema import Settings

# The only value of the option of a request.
EVICT: Final = "evict"


def read(text: str) -> Mapping[str, str]:
    """Return the option of a request from the text of an operator. Raises ``InvalidInput`` (``BadBusyPods``)."""
    options = {"busy_pods": text}
    _check_request(options)
    return options


def begins(_options: Mapping[str, Any]) -> str:
    return " without waiting for busy pods"


def ends(_options: Mapping[str, Any], _plan: Plan) -> str:
    return ""


def _check_request(options: Mapping[str, str]) -> None:
    if (value := options.get("busy_pods", "")) not in ("", EVICT):
        raise InvalidInput(f"busy_pods must be {EVICT}, and not {value[:40]!r}", reason=BusyReason.BAD_BUSY_PODS)


def _open(base: Base) -> Feature:
    if not base.settings.cluster.configured:
        return Feature()
    from nodeagent.features.busy_pods.guard import BusyGuard
    from nodeagent.features.busy_pods.pods import KubeBusyPods

    pods = KubeBusyPods(base.api, base.settings.node_name, base.settings.of(BusyPodSettings))

    def use(settings: Settings) -> None:
        pods.settings = settings.of(BusyPodSettings)

    guard = BusyGuard(pods, base.store, base.clock, base.ports.power.boot_id, base.reporter)
    return Feature(use=use, guard=guard, at_rest=guard.rest)


DOOR: Final = Door(
    title="Busy pods",
    page="usage/busy-pods.md",
    settings=(BusyPodSettings,),
    reasons=BusyReason,
    events=VIEWS,
    status=STATUS,
    check_request=_check_request,
    open=_open,
)
