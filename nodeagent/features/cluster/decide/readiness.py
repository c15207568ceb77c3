# SPDX-License-Identifier: Apache-2.0
"""Whether pods can run on a node, by its Node object and the lease that its kubelet renews.

The condition ``Ready`` alone is not enough. A kubelet writes it when it starts, when it changes, and every five
minutes; it checks the container runtime every five seconds and compares the condition every ten (kubelet:
pkg/kubelet/kubelet_node_status.go). After the kubelet has stopped, the condition stays for 40 seconds. The Lease in
``kube-node-lease`` is renewed every ten seconds and when a kubelet starts. All these times are those of the kubelet's
host.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import floor
from typing import Final

from nodeagent.core.coordination.kube_objects import LeaseObject, Node
from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.core.validate.quantity import parse_quantity

# Seconds after which a condition that an action changed was written: the two periods of the kubelet above.
REPORTED: Final = 15.0


def unready(
    node: Node,
    lease: LeaseObject | None,
    since: str,
    now: str,
    outdated: Mapping[str, str] | None = None,
    kept_back: Mapping[str, Decimal] | None = None,
) -> str:
    """Return why the node is not ready by a report from after ``since`` ("" for any time), or "" if it is.

    ``outdated`` has capacities of the Node (``pods``) that a kubelet with the wrong configuration reports, and
    ``kept_back`` the amounts by which its allocatable resources are less than its capacity with the right one.

    Without a lease, the condition has to suffice. If the clock of the host was set back behind ``since``, no time
    proves anything, and the condition has to suffice as well.
    """
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((condition for condition in conditions if condition["type"] == "Ready"), None)
    if ready is None:
        return "its kubelet has not reported yet"
    # Unknown counts, too: the node controller sets it when the kubelet has not renewed its lease.
    if ready["status"] != "True":
        return ready.get("message") or ready.get("reason") or "its kubelet does not report"
    capacity = (node.get("status") or {}).get("capacity") or {}
    for resource, value in (outdated or {}).items():
        if capacity.get(resource, "") == value:
            return f"its kubelet still reports {value} {resource}"
    if obstacle := _not_kept_back((node.get("status") or {}).get("allocatable") or {}, capacity, kept_back or {}):
        return obstacle
    begin, present = parse_time(since), parse_time(now)
    if begin is None or present is None or present < begin:
        return ""
    # The times of a condition have whole seconds; those of a lease have microseconds.
    if _time(ready.get("lastHeartbeatTime")) >= floor(begin):
        return ""
    if lease is not None and _time((lease.get("spec") or {}).get("renewTime")) < begin:
        return "its kubelet has not renewed its lease since then"
    return "" if present >= begin + REPORTED else "its kubelet has not reported its condition since then"


def _not_kept_back(
    allocatable: Mapping[str, str], capacity: Mapping[str, str], kept_back: Mapping[str, Decimal]
) -> str:
    """As ``MachineInfo`` in pkg/kubelet/nodestatus of the kubelet: huge pages are no memory for other pods."""
    sizes = {resource: parse_quantity(value) or Decimal(0) for resource, value in capacity.items()}
    huge = sum(size for resource, size in sizes.items() if resource.startswith("hugepages-"))
    for resource, amount in kept_back.items():
        reported = parse_quantity(allocatable.get(resource, ""))
        # What the Node does not report proves nothing.
        if resource not in sizes or reported is None:
            continue
        expected = max(Decimal(0), sizes[resource] - amount - (huge if resource == "memory" else 0))
        if reported != expected:
            return f"its kubelet reports {allocatable[resource]} of {resource} for pods, {expected:f} is configured"
    return ""


def _time(text: str | None) -> float:
    """Return a time as seconds since the epoch, 0 without one."""
    return parse_time(text or "") or 0.0
