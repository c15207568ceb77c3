# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class SlotReason(ReasonEnum):
    # fmt: off
    SLOT_PAUSED = "SlotPaused", Kind.REFUSED, "wait: the update continues at the named time; slots.pause sets it, and deleting the free slots ends it", "The pool pauses after an update, so the next one waits."
    SLOT_CONTENDED = "SlotContended", Kind.RETRY, "kubectl get lease -n nodeagent -w shows which client keeps writing the slots", "Other clients keep writing the slots, so the agent cannot take one."
    ZONE_HELD = "ZoneHeld", Kind.REFUSED, "wait for the nodes of the other zone; nodeagent fleet status names slots that are not given back", "Nodes of another zone of the pool are disrupted, so this one waits."
    POOL_HALTED = "PoolHalted", Kind.REFUSED, "repair the degraded nodes (nodeagent fleet status), give them another config, or raise slots.halt_degraded", "Too many nodes of the pool are degraded, so no further one begins."
    POOL_ORDER = "PoolOrder", Kind.REFUSED, "wait for the named pool; nodeagent fleet status shows its nodes; slots.order sets the order", "Another pool has its turn first."
    NO_FLEET = "NoFleet", Kind.REFUSED, "check that it is the right cluster (--kubeconfig, --context)", "No node of the cluster is in a pool or has a desired config."
    NO_DESIRED_CONFIG = "NoDesiredConfig", Kind.FAULT, "kubectl annotate node NODE machineconfiguration.openshift.io/desiredConfig=CONFIG", "The Node has no annotation with a desired config."
    # fmt: on
