# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class JumpReason(ReasonEnum):
    # fmt: off
    BARRIER_SKIPPED = "BarrierSkipped", Kind.REFUSED, "apply a config with the image of the named version, and this one after that"
    DEAD_END = "DeadEnd", Kind.REFUSED, "reinstall the host with a newer image, or choose another one; the message has the publisher's reason"
    NO_UPDATE_PATH = "NoUpdatePath", Kind.REFUSED, "choose an image that the update graph leads to, or correct graph.url (stream, channel, architecture)"
    VERSION_UNKNOWN = "VersionUnknown", Kind.REFUSED, "name the version below images in /etc/nodeagent/update-path.yaml, or label the image with it"
    REQUIREMENT_UNMET = "RequirementUnmet", Kind.REFUSED, "change the host or the config as the message says, or waive it (skip in update-path.yaml)"
    UPDATE_PATH_INVALID = "UpdatePathInvalid", Kind.REFUSED, "correct /etc/nodeagent/update-path.yaml; nodeagent selfcheck shows what is wrong with it"
    GRAPH_UNREACHABLE = "GraphUnreachable", Kind.UNREACHABLE, "check graph.url from this host with curl; with graph.on_unreachable: go no update waits for it"
    GRAPH_REJECTED = "GraphRejected", Kind.REFUSED, "correct graph.url or graph.ca: the answer must be an update graph of the Cincinnati protocol"
    # fmt: on
