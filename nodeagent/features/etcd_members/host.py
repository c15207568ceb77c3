# SPDX-License-Identifier: Apache-2.0
"""The member of etcd on this host and the members of its cluster: the facts, and the steps that change them.

A step is tried once. The facts after it show what it did, also if its answer was lost.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from nodeagent.core.etcd.data_directory import Identity
from nodeagent.core.etcd.quorum import EtcdSurvey, Refusal, troubles
from nodeagent.errors import InvalidInput, Refused
from nodeagent.features.etcd_members.archive import archive
from nodeagent.features.etcd_members.certificates import certificate_problem
from nodeagent.features.etcd_members.config import (
    MEMBER_FILE,
    MemberConfig,
    forget_other_members,
    read_member_config,
    remove_member_file,
    write_member_file,
)
from nodeagent.features.etcd_members.decide.member_facts import MemberFacts, check_version, decide_start
from nodeagent.features.etcd_members.decide.membership import (
    AddLearner,
    ArchiveData,
    ClusterStep,
    Finished,
    MoveLeader,
    Promote,
    RemoveMember,
    StartMember,
    Step,
    StopMember,
    UpdateAddress,
)
from nodeagent.features.etcd_members.pod import MemberPod
from nodeagent.features.etcd_members.reasons import MemberReason
from nodeagent.features.etcd_members.settings import MEMBER_SETTINGS
from nodeagent.host.etcd.client import EtcdAccess, EtcdClient, EtcdFault, endpoints_of, open_client
from nodeagent.host.etcd.data_directory import read_data_directory
from nodeagent.host.etcd.options import Endpoints
from nodeagent.host.etcd.survey import gateways, survey_cluster
from nodeagent.host.programs import ProgramLate, run_program
from nodeagent.host.static_pods.replacement import KubeletStaticPods
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import Clock, UnitState

# Seconds. etcd reports READY=1 only when its cluster has a leader.
START_TIMEOUT: Final = 120.0
# Seconds, longer than systemd's own 90 s, so that systemd reports its timeout first.
STOP_TIMEOUT: Final = 120.0

VERSION_TIMEOUT: Final = 10.0
VERSION: Final = re.compile(r"etcd Version: (\d{1,4}\.\d{1,4}\.\d{1,4}\S{0,40})")

RUNNING: Final = ("active", "activating", "reloading", "deactivating")


class UnitStarter(Protocol):
    """The part of systemd that starts and stops the unit of etcd; ``pod`` has that of the kubelet."""

    async def state(self, unit: str) -> UnitState: ...

    async def start(self, unit: str, deadline: float) -> None: ...

    async def stop(self, unit: str, deadline: float) -> None: ...


class MemberHost:
    """Raises ``AgentError`` only."""

    def __init__(
        self, config: MemberConfig, units: UnitStarter, clock: Clock, *, member_file: Path = MEMBER_FILE
    ) -> None:
        self._config = config
        self._units = units
        self._clock = clock
        self._member_file = member_file
        self._survey: EtcdSurvey | None = None

    @property
    def unattended(self) -> bool:
        return self._config.settings.unattended

    async def facts(self, note: Identity | None) -> MemberFacts:
        running = (await self._units.state(self._config.settings.unit)).active in RUNNING
        facts = await read_facts(self._config, note, running=running)
        self._survey = facts.survey
        if self._config.settings.static_pod and facts.data.identity is not None:
            await asyncio.to_thread(forget_other_members, self._config, self._member_file)
        return replace(facts, permitted=await asyncio.to_thread(self._member_file.exists))

    async def problem(self) -> Refusal | None:
        """Return why this member cannot be added to the cluster of the last facts; None if it can."""
        if self._survey is None:
            return None
        wrong = troubles(self._survey)
        # Only of members that work: one that is down proves nothing about a certificate.
        others = [peer for m in self._survey.members if not wrong[m.id] for peer in m.peers]
        now = datetime.fromisoformat(self._clock.now()).timestamp()
        if problem := await certificate_problem(self._config, others, now):
            return Refusal(MemberReason.ETCD_CERTIFICATES, problem)
        program = self._config.settings.program
        return check_version(await program_version(program), self._survey) if program else None

    async def do(self, step: Step) -> str:
        """Do one step of the last facts. Returns the id of an added member."""
        match step:
            case ArchiveData():
                # First the permission: a kill between both must leave no member that may start without its data.
                await asyncio.to_thread(remove_member_file, self._member_file)
                await asyncio.to_thread(archive, self._config.data, self._clock.now())
            case StartMember():
                await prepare(self._config, step.identity, member_file=self._member_file)
                await self._units.start(self._config.settings.unit, START_TIMEOUT)
            case StopMember():
                # The file shows until then that etcd runs by permission.
                await self._units.stop(self._config.settings.unit, STOP_TIMEOUT)
                await asyncio.to_thread(remove_member_file, self._member_file)
            case Finished():
                pass
            case _:
                return await self._change(step)
        return ""

    async def _change(self, step: ClusterStep) -> str:
        """Request a change of a voter, the leader first: the others forward it to the leader."""
        client, where = await _connect(self._config)
        fault = EtcdFault("no healthy voter has an address for clients")
        for url in _voters(self._survey, where.port):
            try:
                match step:
                    case AddLearner():
                        return await client.add_learner(url, step.peers)
                    case Promote():
                        await client.promote(url, step.member)
                    case RemoveMember():
                        await client.remove(url, step.member)
                    case UpdateAddress():
                        await client.update_address(url, step.member, step.peers)
                    case MoveLeader():
                        await client.move_leader(url, step.to)
            except EtcdFault as error:
                fault = error
                if error.reason not in (Reason.ETCD_UNREACHABLE, Reason.ETCD_CREDENTIALS):
                    raise
                continue
            return ""
        raise fault


async def open_member(units: UnitStarter, static_pods: KubeletStaticPods, clock: Clock) -> MemberHost | None:
    """Read the settings of the member; None without them. Raises ``InvalidInput``.

    They are read for each operation, so that other settings need no restart of the daemon.
    """
    if not await asyncio.to_thread(Path(MEMBER_SETTINGS).exists):
        return None
    config = await read_member_config()
    if config is None:
        return None
    starter = MemberPod(config, static_pods) if config.settings.static_pod else units
    return MemberHost(config, starter, clock)


async def prepare(config: MemberConfig, note: Identity | None, *, member_file: Path = MEMBER_FILE) -> None:
    """Write the config with which etcd may start. Raises ``Refused``, and then there is none."""
    start = decide_start(await read_facts(config, note, running=False))
    if isinstance(start, Refusal):
        await asyncio.to_thread(remove_member_file, member_file)
        raise Refused(start.message, reason=start.reason)
    await asyncio.to_thread(write_member_file, config, start, member_file)


async def read_facts(config: MemberConfig, note: Identity | None, *, running: bool) -> MemberFacts:
    facts = MemberFacts(config.name, config.peers, note=note, running=running)
    try:
        client, where = await _connect(config)
        # The name is not given: this host is recognized by its data and by its address.
        facts = replace(facts, survey=await survey_cluster(client, where, ""))
    except EtcdFault as fault:
        facts = replace(facts, unreachable=Refusal(fault.reason, fault.message))
    # After the list of members, see ``decide.member_facts``.
    return replace(facts, data=await asyncio.to_thread(read_data_directory, config.data))


async def _connect(config: MemberConfig) -> tuple[EtcdClient, Endpoints]:
    """Connect to the other members first: a removed member, or one without its data, knows an old list of members."""
    options = config.options
    own = endpoints_of(options, EtcdAccess())
    others = [url.rstrip("/") for url in config.settings.endpoints]
    where = Endpoints((), tuple(dict.fromkeys((*others, *own.ours))), own.port)
    return await asyncio.to_thread(open_client, options, EtcdAccess(), where), where


def _voters(survey: EtcdSurvey | None, port: int | None) -> Sequence[str]:
    if survey is None:
        return ()
    wrong = troubles(survey)
    leaders = {state.leader for state in survey.states.values()}
    # A learner refuses such requests, and a member in trouble may not forward them.
    fit = [member for member in survey.members if not member.learner and not wrong[member.id]]
    fit.sort(key=lambda member: member.id not in leaders)
    return [url for member in fit for url in gateways(member, port)]


async def program_version(program: str) -> str:
    """Run ``etcd --version``. Raises ``InvalidInput`` (``EtcdConfigInvalid``) if that is no etcd."""
    try:
        _, lines = await run_program(program, ["--version"], Path("/"), VERSION_TIMEOUT)
    except OSError as error:
        raise InvalidInput(f"{program}: {error.strerror}", reason=MemberReason.ETCD_CONFIG_INVALID) from error
    except ProgramLate:
        lines = ()
    version = next(filter(None, map(VERSION.fullmatch, lines)), None)
    if version is None:
        raise InvalidInput(f"{program} --version names no version of etcd", reason=MemberReason.ETCD_CONFIG_INVALID)
    return version[1]
