# SPDX-License-Identifier: Apache-2.0
"""A cluster of etcd on loopback: three members with TLS for clients and peers, each in the place of a host.

What is on the host of a member is a directory: the manifest of its static pod, as kubeadm writes it, whose paths lead
through the pod's mounts to the certificates. Members are killed, started again, and added as learners.
"""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path
from typing import Any, Final

import yaml

from integration import tls
from integration.cluster import pki
from integration.cluster.programs import Binaries
from integration.cluster.server import Server, free_port

READY_TIMEOUT: Final = 90.0
PKI: Final = "/etc/kubernetes/pki/etcd"  # where the container has it mounted


class EtcdMember:
    def __init__(self, cluster: EtcdCluster, name: str, number: int) -> None:
        self.name = name
        self.address = f"127.0.0.{10 + number}"  # one for each host, so that all have the same ports
        self.client = f"https://{self.address}:{cluster.client_port}"
        self.peer = f"https://{self.address}:{cluster.peer_port}"
        self._cluster = cluster
        self.host = cluster.directory / "hosts" / name
        # Peers are checked against where they come from, which is the first address of loopback.
        self.certificate, self.key = cluster.authority.member(name, f"IP:{self.address}", "IP:127.0.0.1")

    def make(self, *, state: str) -> None:
        """`state` is etcd's initial-cluster-state: new or existing."""
        directory, authority = self._cluster.directory, self._cluster.authority
        peers = ",".join(f"{member.name}={member.peer}" for member in self._cluster.members)
        flags = [
            f"--name={self.name}", f"--listen-client-urls={self.client}", f"--advertise-client-urls={self.client}",
            f"--listen-peer-urls={self.peer}", f"--initial-advertise-peer-urls={self.peer}",
            f"--initial-cluster={peers}", f"--initial-cluster-state={state}", "--client-cert-auth=true",
        ]  # fmt: skip
        real = [
            f"--data-dir={directory / self.name}",
            f"--cert-file={self.certificate}", f"--key-file={self.key}", f"--trusted-ca-file={authority.certificate}",
            f"--peer-cert-file={self.certificate}", f"--peer-key-file={self.key}", "--peer-client-cert-auth=true",
            f"--peer-trusted-ca-file={authority.certificate}", "--unsafe-no-fsync", "--log-level=warn",
            "--heartbeat-interval=50", "--election-timeout=500", *self._cluster.flags,
        ]  # fmt: skip
        self.server = Server(
            f"etcd {self.name}",
            [str(self._cluster.binaries.etcd), *flags, *real],
            directory / f"{self.name}.log",
            lambda: bool(self.status()),
        )
        self._manifest(flags)

    def _manifest(self, flags: list[str]) -> None:
        keys = self.host / "var/keys"
        keys.mkdir(parents=True)
        (keys / "ca.crt").write_bytes(self._cluster.authority.certificate.read_bytes())
        (keys / "server.crt").write_bytes(self.certificate.read_bytes())
        (keys / "server.key").write_bytes(self.key.read_bytes())
        inside = [f"--cert-file={PKI}/server.crt", f"--key-file={PKI}/server.key", f"--trusted-ca-file={PKI}/ca.crt"]
        container = {
            "name": "etcd",
            "command": ["etcd", *flags, *inside],
            "volumeMounts": [{"mountPath": PKI, "name": "certs"}],
        }
        volumes = [{"name": "certs", "hostPath": {"path": "/var/keys"}}]
        pod = {"kind": "Pod", "spec": {"hostNetwork": True, "containers": [container], "volumes": volumes}}
        manifests = self.host / "etc/kubernetes/manifests"
        manifests.mkdir(parents=True)
        (manifests / "etcd.yaml").write_text(yaml.safe_dump(pod))

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises OSError if no server answers."""
        context = tls.client(self._cluster.authority.certificate)
        context.load_cert_chain(self.certificate, self.key)
        connection = http.client.HTTPSConnection(self.address, self._cluster.client_port, timeout=10, context=context)
        try:
            connection.request("POST", path, json.dumps(body))
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        """{} while it does not serve, or has no leader."""
        try:
            answer = self.ask("/v3/maintenance/status", {})
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        return answer if answer.get("leader", "0") != "0" else {}

    @property
    def id(self) -> str:
        found: str = self.status()["header"]["member_id"]
        return found


class EtcdCluster:
    def __init__(
        self, binaries: Binaries, directory: Path, *flags: str, names: tuple[str, ...] = ("a", "b", "c")
    ) -> None:
        self.binaries = binaries
        self.directory = directory
        self.flags = flags
        self.client_port, self.peer_port = free_port(), free_port()
        self.authority = pki.Authority(directory / "pki", "etcd-ca")
        self.members = [EtcdMember(self, name, number) for number, name in enumerate(names)]
        for member in self.members:
            member.make(state="new")

    def start(self) -> None:
        for member in self.members:
            member.server.start()
        for member in self.members:
            member.server.wait_ready(READY_TIMEOUT)

    def add(self, name: str, *, learner: bool) -> EtcdMember:
        """To the membership; it does not run yet."""
        member = EtcdMember(self, name, len(self.members))
        deadline = time.monotonic() + READY_TIMEOUT
        # Refused until all have seen each other for five seconds.
        while "member" not in self.members[0].ask(
            "/v3/cluster/member/add", {"peerURLs": [member.peer], "isLearner": learner}
        ):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        self.members.append(member)
        member.make(state="existing")
        return member

    def leader(self) -> EtcdMember:
        deadline = time.monotonic() + READY_TIMEOUT
        while time.monotonic() < deadline:
            for member in self.members:
                status = member.status()
                if status and status["leader"] == status["header"]["member_id"]:
                    return member
            time.sleep(0.1)
        raise AssertionError("no member leads")

    def follower(self) -> EtcdMember:
        leader = self.leader()
        return next(member for member in self.members if member is not leader and member.status())

    def close(self) -> None:
        for member in self.members:
            member.server.kill()
