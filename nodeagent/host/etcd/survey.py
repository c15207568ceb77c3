# SPDX-License-Identifier: Apache-2.0
"""The members of the cluster that has a member on this host, and their states."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from nodeagent.core.etcd.quorum import EtcdSurvey, Member, MemberState
from nodeagent.host.etcd.client import EtcdClient, EtcdFault
from nodeagent.host.etcd.options import Endpoints
from nodeagent.reasons import Reason


async def survey_cluster(client: EtcdClient, where: Endpoints, name: str) -> EtcdSurvey:
    """Survey all members. ``name`` is that of the member on this host. Raises ``EtcdFault`` if no member answers."""
    answered, members = await _first(client, (*where.ours, *where.others))
    us, our_url, our_state = await _ourselves(client, where.ours, members, name)
    states = dict(
        await asyncio.gather(
            *(
                _state_of(client, member, where.port, our_state if member.id == us else None)
                for member in members
                if member.name
            )
        )
    )
    survey = EtcdSurvey(us=us, members=members, states=states)
    try:
        return replace(survey, alarms=await client.alarms(our_url or answered))
    except EtcdFault as fault:
        # Without a quorum no member knows the alarms; the rest of the survey has the reason.
        return replace(survey, unknown=f"the alarms are not known: {fault.message}")


async def _first(client: EtcdClient, urls: Sequence[str]) -> tuple[str, Sequence[Member]]:
    faults = []
    for url in urls:
        try:
            return url, await client.members(url)
        except EtcdFault as fault:
            faults.append(fault)
    reason = next((fault.reason for fault in faults if fault.reason != Reason.ETCD_UNREACHABLE), None)
    raise EtcdFault("no member answers: " + "; ".join(dict.fromkeys(fault.message for fault in faults)), reason=reason)


async def _ourselves(
    client: EtcdClient, ours: Sequence[str], members: Sequence[Member], name: str
) -> tuple[str, str, MemberState | None]:
    """Return the id of the member on this host, the address that answered, and the state.

    If no address answers, the member is found by name, and the address is "".
    """
    silent = ""
    for url in ours:
        try:
            member, state = await client.state(url)
        except EtcdFault as fault:
            silent = silent or fault.message
            continue
        if not name or name in [candidate.name for candidate in members if candidate.id == member]:
            return member, url, state
        # The advertised URL may be that of a load balancer.
        silent = silent or f"another member answers at {url}"
    named = [member.id for member in members if name and member.name == name]
    return (named[0] if len(named) == 1 else ""), "", MemberState(fault=f"does not answer ({silent})")


async def _state_of(
    client: EtcdClient, member: Member, port: int | None, our_state: MemberState | None
) -> tuple[str, MemberState]:
    if our_state is not None:
        return member.id, our_state
    state = MemberState(fault="has no address for clients")
    for url in gateways(member, port):
        try:
            answered, reported = await client.state(url)
        except EtcdFault as fault:
            state = MemberState(fault=f"does not answer ({fault.message})")
            continue
        # Only an answer of the member itself counts.
        if answered == member.id:
            return member.id, reported
        # The advertised address is a loopback or a load balancer, so that another member has answered.
        state = MemberState(fault=f"another member answers at {url}")
    return member.id, state


def gateways(member: Member, port: int | None) -> Sequence[str]:
    """Return the addresses that a member advertises, with ``port`` if it is set: members of a cluster are alike."""
    urls = []
    for url in member.urls:
        # An address that is none, such as one with half of the brackets of IPv6.
        try:
            parts = urlsplit(url)
        except ValueError:
            continue
        if parts.scheme not in ("http", "https") or not parts.hostname:
            continue
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        urls.append(url.rstrip("/") if port is None else urlunsplit((parts.scheme, f"{host}:{port}", "", "", "")))
    return tuple(dict.fromkeys(urls))
