# SPDX-License-Identifier: Apache-2.0
"""The setting of the feature."""

from __future__ import annotations

from nodeagent.settings.part import Part


class QuorumSettings(Part, frozen=True, forbid_unknown_fields=True):
    """``single_member``: whether a host with the only member of its etcd cluster may be drained and rebooted. False:
    the API server of that cluster is down during the reboot, so an operator must allow it."""

    group = "etcd"

    single_member: bool = False
