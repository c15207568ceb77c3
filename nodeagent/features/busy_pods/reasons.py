# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class BusyReason(ReasonEnum):
    # fmt: off
    BUSY_PODS = "BusyPods", Kind.REFUSED, "wait for the named pods, or delete them; nodeagent apply --busy-pods evict does not wait for any", "Pods that busy_pods.selectors match run on this node, so no update begins to drain or to reboot it."
    BUSY_PODS_UNKNOWN = "BusyPodsUnknown", Kind.REFUSED, "check what the API server answers: kubectl get pods -A -l SELECTOR --field-selector spec.nodeName=NODE", "The API server has not answered whether pods that busy_pods.selectors match run on this node."
    BAD_BUSY_PODS = "BadBusyPods", Kind.INPUT, "the only value is evict, as in nodeagent apply --busy-pods evict", "The option of a request about busy pods has another value than evict."
    # fmt: on
