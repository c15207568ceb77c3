# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class MemberReason(ReasonEnum):
    # fmt: off
    ETCD_DATA_FOREIGN = "EtcdDataForeign", Kind.REFUSED, "mount the right disk, or run nodeagent etcd join: it keeps these data under another name", "The data directory belongs to another cluster or another member."
    ETCD_REMOVED = "EtcdRemoved", Kind.REFUSED, "nodeagent etcd join adds this host again; if it must stay away, disable its etcd", "The cluster removed this member."
    ETCD_ADDRESS_DIFFERS = "EtcdAddressDiffers", Kind.REFUSED, "stop etcd on this host, then run nodeagent etcd join: it updates the address first", "The cluster knows this member by another address than the host has."
    ETCD_MEMBER_ALIVE = "EtcdMemberAlive", Kind.REFUSED, "run nodeagent etcd leave on the host of that member, or name one that is down", "The member that was to be replaced still answers."
    ETCD_STARTING = "EtcdStarting", Kind.RETRY, "the log of etcd on this host has the reason if it does not end (journalctl -u etcd)", "The member was added, and its etcd does not answer yet."
    ETCD_CHANGING = "EtcdChanging", Kind.REFUSED, "wait until it has ended; nodeagent status shows its step", "A join, leave or replacement is under way."
    ETCD_CERTIFICATES = "EtcdCertificates", Kind.REFUSED, "renew the named certificate with the authority of the cluster, for the addresses of this host", "A certificate of the member is missing, has expired, or is for other addresses."
    ETCD_NOT_CONFIGURED = "EtcdNotConfigured", Kind.INPUT, "write /etc/nodeagent/etcd-member.yaml; docs/usage/etcd-members.md has an example", "This host has no settings for a member of etcd."
    ETCD_CONFIG_INVALID = "EtcdConfigInvalid", Kind.INPUT, "correct /etc/nodeagent/etcd-member.yaml, or the etcd config file that it names", "The settings for the member of etcd break a rule."
    # fmt: on
