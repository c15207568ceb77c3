# SPDX-License-Identifier: Apache-2.0
"""The settings of the member of etcd: a file of its own, because most hosts have none. It is read for each operation.

etcd's own config file has the rest: names, addresses, certificates and the data directory.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from nodeagent import typed
from nodeagent.core.config.text import document
from nodeagent.errors import InvalidInput
from nodeagent.features.etcd_members.reasons import MemberReason
from nodeagent.settings.cluster import OptionalPath, Unit, Url

MEMBER_SETTINGS: Final = "/etc/nodeagent/etcd-member.yaml"


class MemberSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """``config``: etcd's config file, without the keys ``initial-cluster`` and ``initial-cluster-state``.

    ``endpoints``: client URLs of other members. One that answers is enough; more of them make a join possible while one
    is down.

    ``unit``: the service that runs etcd. It must not start etcd without ``nodeagent etcd prepare``.

    ``static_pod``: path of the manifest of a static pod that runs etcd, instead of ``unit``. nodeagent copies it into
    the directory of the kubelet when the member may start.

    ``program``: path of etcd, to check its version before it joins; "" for no check.

    ``unattended``: whether the daemon joins the cluster, and replaces a member whose disk was lost, without a command.
    """

    config: Annotated[str, Meta(pattern=r"^/[^\x00-\x1f]+$", max_length=4096)]
    # Far above the seven members that etcd advises at most.
    endpoints: Annotated[tuple[Url, ...], Meta(min_length=1, max_length=32)]
    unit: Unit = "etcd.service"
    static_pod: OptionalPath = ""
    program: OptionalPath = ""
    unattended: bool = False


def parse_member_settings(text: bytes) -> MemberSettings:
    """Return the settings of the member of etcd. Raises ``InvalidInput`` (``EtcdConfigInvalid``)."""
    try:
        member_settings = typed.convert(document.load(text, MEMBER_SETTINGS), MemberSettings)
    # The reason names the file: that of a document that is not valid would say nothing about etcd.
    except InvalidInput as error:
        error.reason = MemberReason.ETCD_CONFIG_INVALID
        raise
    except ValueError as error:
        raise InvalidInput(f"{MEMBER_SETTINGS}: {error}", reason=MemberReason.ETCD_CONFIG_INVALID) from error
    # The pattern of an address allows the empty text, which means "none" in other settings.
    if not all(member_settings.endpoints):
        raise InvalidInput(f"{MEMBER_SETTINGS}: an endpoint is empty", reason=MemberReason.ETCD_CONFIG_INVALID)
    return member_settings
