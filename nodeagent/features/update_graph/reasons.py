# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class JumpReason(ReasonEnum):
    # fmt: off
    BARRIER_SKIPPED = "BarrierSkipped", Kind.REFUSED, "apply a config with the image of the named version, and this one after that", "The update leaves out a version that has to be booted first."
    DEAD_END = "DeadEnd", Kind.REFUSED, "reinstall the host with a newer image, or choose another one; the message has the publisher's reason", "No update leads on from the version of this host."
    NO_UPDATE_PATH = "NoUpdatePath", Kind.REFUSED, "choose an image that the update graph leads to, or correct graph.url (stream, channel, architecture)", "The update graph has no way from the version of this host to that of the config."
    VERSION_UNKNOWN = "VersionUnknown", Kind.REFUSED, "name the version below images in /etc/nodeagent/update-path.yaml, or label the image with it", "The version of an image cannot be found, so the way to it cannot be judged."
    REQUIREMENT_UNMET = "RequirementUnmet", Kind.REFUSED, "change the host or the config as the message says, or waive it (skip in update-path.yaml)", "The new version requires something that this host or the config does not have."
    UPDATE_PATH_INVALID = "UpdatePathInvalid", Kind.REFUSED, "correct /etc/nodeagent/update-path.yaml; nodeagent selfcheck shows what is wrong with it", "The rules for versions of this host break a rule themselves."
    GRAPH_UNREACHABLE = "GraphUnreachable", Kind.UNREACHABLE, "check graph.url from this host with curl; with graph.on_unreachable: go no update waits for it", "The server of the update graph does not answer."
    GRAPH_REJECTED = "GraphRejected", Kind.REFUSED, "correct graph.url or graph.ca: the answer must be an update graph of the Cincinnati protocol", "The answer of the server is no update graph."
    # fmt: on
