# SPDX-License-Identifier: Apache-2.0
"""A host whose member of etcd nodeagent manages: real store, real etcd, and a unit that is only a process here, or a
static pod of a kubelet that runs it as such a process.

`Killed` is raised before and after each effect, once for each kind of it, as a kill of the agent would end it there.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from integration.cluster.etcd import EtcdCluster, EtcdMember
from integration.cluster.pod_kubelet import PodKubelet
from integration.cluster.server import Server, ServerFailed
from nodeagent.agent.report.report import Report
from nodeagent.core.etcd.data_directory import Identity
from nodeagent.core.etcd.quorum import Refusal
from nodeagent.errors import AgentError, Retryable
from nodeagent.features.etcd_members.config import read_member_config
from nodeagent.features.etcd_members.decide.member_facts import MemberFacts
from nodeagent.features.etcd_members.decide.membership import (
    NOTE_KEY,
    MemberNote,
    MemberRequest,
    OperationKind,
    Step,
    note_from_text,
)
from nodeagent.features.etcd_members.events import MemberProgress
from nodeagent.features.etcd_members.host import MemberHost, UnitStarter, prepare
from nodeagent.features.etcd_members.manager import MemberManager
from nodeagent.features.etcd_members.pod import MemberPod
from nodeagent.host.clock import SystemClock
from nodeagent.host.etcd.proof import MemberProof
from nodeagent.host.fs.files import HostFiles
from nodeagent.host.lease import LocalLease
from nodeagent.host.static_pods.replacement import KubeletStaticPods
from nodeagent.host.static_pods.running import Crictl
from nodeagent.host.store.store import SqliteStore
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.report.views.registry import view_of
from nodeagent.update.ports.events import Event
from nodeagent.update.ports.host import UnitState
from nodeagent.update.stages.coordination import Coordination

T = TypeVar("T")

TIMEOUT = 90.0
# The last effect of an operation.
ENDED = "after store etcd-operation removed"
MANIFESTS = "/etc/kubernetes/manifests"
SETTINGS = ("unattended", "program", "endpoints")


class Killed(BaseException):
    """The agent was killed here."""


class Unit:
    """`etcd.service`: its ExecStartPre is `nodeagent etcd prepare`, which the caller gives."""

    def __init__(self, node: MemberNode) -> None:
        self._node = node

    async def state(self, unit: str) -> UnitState:
        active = "active" if self._node.runs else "inactive"
        return UnitState(unit, "loaded", active, "", "notify", "", "", 0, "enabled")

    async def start(self, unit: str, deadline: float) -> None:
        # systemd does nothing for a unit that is active.
        if not self._node.runs:
            await self._node.start_unit()

    async def stop(self, unit: str, deadline: float) -> None:
        self._node.server.kill()


@dataclass
class Kills:
    """Kinds of effects that were met, each before and after it."""

    seen: list[str] = field(default_factory=list)
    armed: bool = False

    def at(self, point: str) -> None:
        if self.armed and point not in self.seen:
            self.seen.append(point)
            raise Killed(point)


class Store(SqliteStore):
    kills: Kills

    async def keep_note(self, key: str, text: str) -> None:
        what = f"store {key} {'set' if text else 'removed'}"
        self.kills.at(f"before {what}")
        await super().keep_note(key, text)
        self.kills.at(f"after {what}")


@dataclass
class Port:
    """A `MemberHost` that is killed around its steps."""

    host: MemberHost
    kills: Kills

    @property
    def unattended(self) -> bool:
        return self.host.unattended

    async def facts(self, note: Identity | None) -> MemberFacts:
        return await self.host.facts(note)

    async def problem(self) -> Refusal | None:
        return await self.host.problem()

    async def do(self, step: Step) -> str:
        self.kills.at(f"before {type(step).__name__}")
        found = await self.host.do(step)
        self.kills.at(f"after {type(step).__name__}")
        return found


class MemberNode:
    def __init__(
        self,
        cluster: EtcdCluster,
        name: str,
        number: int,
        etcd: Path | None = None,
        *,
        static_pod: bool = False,
        **settings: Any,
    ) -> None:
        self.cluster = cluster
        self.member = EtcdMember(cluster, name, number)
        self.name = name
        self.directory = cluster.directory / "nodes" / name
        self.directory.mkdir(parents=True)
        self.data = self.directory / "data"
        self.member_file = self.directory / "run/member.json"
        self.kills = Kills()
        self._stack = ExitStack()
        self.journal: list[str] = []
        program = etcd or cluster.binaries.etcd
        self.server = Server(
            f"etcd {name}",
            [str(program), f"--config-file={self.member_file}"],
            self.directory / "etcd.log",
            lambda: bool(self.member.status()),
        )
        self.settings = self.directory / "etcd-member.yaml"
        self.kubelet = self._kubelet() if static_pod else None
        if static_pod:
            settings["static_pod"] = str(self._manifest())
        endpoints = [member.client for member in cluster.members]
        self._write(
            self.settings, {"config": str(self._config()), "endpoints": endpoints, "program": str(program), **settings}
        )

    def _kubelet(self) -> PodKubelet:
        kubelet = PodKubelet(self.directory, MANIFESTS.strip("/"))
        kubelet.server, kubelet.gate = self.server, self.member_file
        self._stack.enter_context(kubelet.runs())
        return kubelet

    def _manifest(self) -> Path:
        mounts = {"gate": (self.member_file, "File"), "data": (self.data, "DirectoryOrCreate")}
        container = {
            "name": "etcd",
            "image": "etcd:1",
            "command": ["etcd", f"--config-file={self.member_file}"],
            "volumeMounts": [{"name": name, "mountPath": str(path)} for name, (path, _) in mounts.items()],
        }
        volumes = [
            {"name": name, "hostPath": {"path": str(path), "type": kind}} for name, (path, kind) in mounts.items()
        ]
        spec = {"hostNetwork": True, "containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1}
        path = self.directory / "etcd-pod.yaml"
        self._write(path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "etcd"}, "spec": spec})
        return path

    def close(self) -> None:
        self._stack.close()
        self.server.kill()

    def _write(self, path: Path, document: dict[str, Any]) -> None:
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)

    def _config(self) -> Path:
        member, authority = self.member, self.cluster.authority
        tls = {
            "cert-file": str(member.certificate),
            "key-file": str(member.key),
            "trusted-ca-file": str(authority.certificate),
            "client-cert-auth": True,
        }
        document = {
            "name": self.name,
            "data-dir": str(self.data),
            "listen-client-urls": member.client,
            "advertise-client-urls": member.client,
            "listen-peer-urls": member.peer,
            "initial-advertise-peer-urls": member.peer,
            "client-transport-security": tls,
            "peer-transport-security": dict(tls),
            "unsafe-no-fsync": True,
            "log-level": "warn",
            "heartbeat-interval": 50,
            "election-timeout": 500,
        }
        path = self.directory / "etcd.yaml"
        self._write(path, document)
        return path

    @property
    def runs(self) -> bool:
        return self.server.alive

    async def start_unit(self) -> None:
        """With the check that systemd makes before it starts etcd. Returns when etcd serves, as of `Type=notify`."""
        config = await read_member_config(str(self.settings))
        assert config is not None
        await prepare(config, (await self.note()).identity, member_file=self.member_file)
        self.server.start()
        try:
            await asyncio.to_thread(self.server.wait_ready, 10)
        except ServerFailed as error:
            raise Retryable("etcd.service: the job ended as 'failed'", reason=Reason.JOB_FAILED) from error

    def lose_disk(self) -> None:
        """A kubelet starts etcd again, on the empty disk."""
        with self.server.lock:
            self.server.kill()
            shutil.rmtree(self.data)

    async def note(self) -> MemberNote:
        async with self._store_for_reading() as text:
            return note_from_text(text)

    @asynccontextmanager
    async def _store_for_reading(self) -> AsyncIterator[str]:
        from nodeagent.host.store.opening import read_only_open

        path = self.directory / "state/state.db"
        if not path.exists():
            yield ""
            return
        with read_only_open(path) as store:
            yield store.note(NOTE_KEY)

    async def agent(self, request: MemberRequest | None, *, give_up: float = 60.0) -> MemberProgress:
        """Run an agent until an operation has ended. None: it continues one, or begins one unattended."""
        report = Report(Status())
        ended: asyncio.Future[MemberProgress] = asyncio.get_running_loop().create_future()

        def sink(event: Event, status: Status) -> None:
            progress = status.part(MemberProgress)
            self.journal.append(view_of(event).sentence(event, status))
            if progress is not None and progress.ended and not ended.done():
                ended.set_result(progress)

        report.add(sink)
        Store.kills = self.kills
        async with Store(self.directory / "state/state.db") as store:
            clock = SystemClock()
            manager = MemberManager(
                Coordination(LocalLease(store, clock)),
                clock,
                store,
                report,
                lambda: self._open(store),
                on_release=lambda: None,
                pause=0.2,
                poll=0.2,
                give_up=give_up,
            )
            await manager.load()
            if request is not None and report.status.part(MemberProgress) is None:
                await manager.start("tester", request)
            task = asyncio.create_task(manager.run())
            try:
                async with asyncio.timeout(TIMEOUT):
                    while not (task.done() or ended.done()):
                        await asyncio.sleep(0.05)
                if not ended.done():
                    task.result()
                assert await store.lease() is None
                return await ended
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _open(self, store: SqliteStore) -> Port:
        config = await read_member_config(str(self.settings))
        assert config is not None
        units: UnitStarter = Unit(self)
        if self.kubelet is not None:
            root = str(self.directory)
            pods = KubeletStaticPods(
                HostFiles(root), store, SystemClock(), Crictl(), MemberProof(Path()), root=root, start=10.0
            )
            await pods.recover()
            units = MemberPod(config, pods, member_file=self.member_file, root=self.directory)
        return Port(MemberHost(config, units, SystemClock(), member_file=self.member_file), self.kills)

    def unattended(self, seconds: float, *, kills: bool = False) -> MemberProgress | None:
        """Run an agent without a request for at most `seconds`. Return the operation that it carried out.

        With `kills`, the agent is killed at each point and started again, each time for `seconds`.
        """
        self.kills.armed = kills
        # A kill after it would take the answer along, and without a request there is no other sign of the end.
        self.kills.seen.append(ENDED)

        async def watch() -> MemberProgress | None:
            try:
                async with asyncio.timeout(seconds):
                    return await self.agent(None)
            except TimeoutError:
                return None

        return self._resumed(watch)

    def _resumed(self, run: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run agents until one of them is not killed, or is killed after the end of its operation."""
        busy = 0
        while True:
            try:
                return asyncio.run(run())
            except Killed as killed:
                if str(killed) == ENDED:
                    raise
            except AgentError as error:
                # The thread of a killed agent may still be closing the store, which the end of a process does at once.
                if error.reason != "StoreBusy" or (busy := busy + 1) >= 600:
                    raise
                time.sleep(0.1)

    def may_start(self) -> str:
        """Return "yes", or the reason with which `nodeagent etcd prepare` refuses."""

        async def ask() -> str:
            config = await read_member_config(str(self.settings))
            assert config is not None
            try:
                await prepare(config, (await self.note()).identity, member_file=self.member_file)
            except AgentError as error:
                assert not self.member_file.exists()
                return str(error.reason)
            return "yes"

        return asyncio.run(ask())

    def configure(self, **settings: Any) -> None:
        """Change keys of etcd's config file, or of the settings."""
        for path in (self.directory / "etcd.yaml", self.settings):
            document = yaml.safe_load(path.read_text())
            changed = {key: value for key, value in settings.items() if (key in SETTINGS) == (path == self.settings)}
            self._write(path, {**document, **{key.replace("_", "-"): value for key, value in changed.items()}})

    def change(
        self, kind: OperationKind, member: str = "", *, kills: bool = False, give_up: float = 60.0
    ) -> MemberProgress:
        """Carry an operation out. With `kills`, the agent is killed at each point and started again."""
        self.kills.armed = kills
        request = MemberRequest(kind, member)
        while True:
            try:
                return self._resumed(lambda: self.agent(request, give_up=give_up))
            except Killed:
                # The operation ended, and its answer was lost.
                return MemberProgress("", kind, "", "", "", "done")
            except AgentError as error:
                # Right after a change etcd refuses the next one for some seconds; an operator repeats it.
                if error.reason not in ("EtcdQuorumAtRisk", "EtcdStarting") or "unhealthy" not in error.message:
                    raise
