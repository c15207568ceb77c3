# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature, and which label selectors are valid.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import Meta

from nodeagent.settings.cluster import Namespace
from nodeagent.settings.part import Contradiction, Part
from nodeagent.settings.schema import Settings

# As the API server parses it (apimachinery, pkg/labels): terms with equality, with sets, with the presence of a key,
# and with numbers. Spaces may be around every part. An empty selector would match every pod, so it is none here.
_LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?"
_VALUE: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY: Final = rf"((?=[^/]{{1,253}}/){_LABEL}(\.{_LABEL})*/)?{_VALUE}"
_SPACE: Final = r"[ \t\r\n]*"
# An empty value in a list is the empty text, but there must be one: "()" has none.
_VALUES: Final = rf"\({_SPACE}({_VALUE}|(?=,))({_SPACE},{_SPACE}({_VALUE})?)*{_SPACE}\)"
_RELATION: Final = (
    rf"{_SPACE}(==?|!=){_SPACE}({_VALUE})?|[ \t\r\n]+(in|notin){_SPACE}{_VALUES}|{_SPACE}[<>]{_SPACE}[0-9]{{1,18}}"
)
_TERM: Final = rf"{_SPACE}(!{_SPACE}{_KEY}|{_KEY}({_RELATION})?){_SPACE}"
SELECTOR: Final = rf"^{_TERM}(,{_TERM})*\Z"

# Each is one request to the API server at each attempt.
MAX_SELECTORS: Final = 16

BusySelector = Annotated[
    str,
    Meta(
        pattern=SELECTOR,
        max_length=1024,
        description="a label selector of Kubernetes, as in app=backup or job in (image,test),!idle",
    ),
]


class BusyPodSettings(Part, frozen=True, forbid_unknown_fields=True):
    """Pods for which an update or a maintenance waits before it drains, reboots or powers off this node, in a cluster.

    ``selectors``: label selectors, as of kubectl get pods -l. A pod of this node that one of them matches, and that has
    not finished, holds the update off. At most 16. An empty list: none.

    ``namespaces``: the namespaces in which the selectors count. An empty list: all.

    ``longest_wait``: seconds for which such pods hold one update off in all; then it begins, and the drain evicts them.
    0: it waits until they are gone, because nothing is known about what their work is worth.
    """

    group = "busy_pods"

    selectors: tuple[BusySelector, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    longest_wait: Annotated[float, Meta(ge=0, le=30 * 86400)] = 0

    def contradictions(self, settings: Settings) -> Iterator[Contradiction]:
        if self.selectors and not settings.cluster.configured:
            yield ("busy_pods.selectors",), "busy_pods.selectors needs a cluster (cluster.kubeconfig)"
        if len(self.selectors) > MAX_SELECTORS:
            yield ("busy_pods.selectors",), f"busy_pods.selectors has more than {MAX_SELECTORS} entries"
        if not self.selectors and (self.namespaces or self.longest_wait):
            keys = ("busy_pods.namespaces", "busy_pods.longest_wait", "busy_pods.selectors")
            message = "busy_pods.namespaces and busy_pods.longest_wait need busy_pods.selectors: no pod is waited for"
            yield keys, message
