# SPDX-License-Identifier: Apache-2.0
"""The replacement of a static pod against a kubelet with its pitfalls, and what a failure leaves behind."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.errors import AgentError
from nodeagent.host.clock import SystemClock
from nodeagent.host.etcd.proof import MemberProof
from nodeagent.host.fs.files import HostFiles
from nodeagent.host.static_pods import replacement
from nodeagent.host.static_pods.replacement import HIDDEN, TAKEN, KubeletStaticPods
from nodeagent.host.static_pods.running import Crictl
from nodeagent.reasons import Reason
from tests.host.static_pods.kubelet import StandInKubelet
from tests.support.disk import needs_root

DIRECTORY = "etc/kubernetes/manifests"
PATH = f"/{DIRECTORY}/etcd.yaml"


def manifest(image: str = "etcd:1", name: str = "etcd") -> bytes:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"containers": [{"name": "etcd", "image": image}], "terminationGracePeriodSeconds": 1},
    }
    return yaml.safe_dump(pod).encode()


def file(content: bytes) -> RegularFile:
    return RegularFile(content, 0o600, os.geteuid(), os.getegid())


class Notes:
    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    async def note(self, key: str) -> str:
        return self.kept.get(key, "")

    async def keep_note(self, key: str, text: str) -> None:
        self.kept[key] = text


class Runtime(Crictl):
    """A container of `lingers` runs after the kubelet has removed the directory of its pod."""

    def __init__(self) -> None:
        self.ensured: list[str] = []
        self.lingers = 0

    async def ensure(self, images: Mapping[str, str]) -> None:
        self.ensured += images

    async def runs(self, uid: str) -> bool:
        assert uid
        self.lingers -= 1
        return self.lingers >= 0


class Etcd(MemberProof):
    """A member whose identity is that of the image, as if each image had data of its own."""

    def __init__(self, kubelet_root: Path) -> None:
        self.root = kubelet_root
        self.snapshots = 0
        self.member = "17"
        self.problem = ""

    async def identity(self) -> str:
        return self.member

    async def cluster_version(self) -> str:
        return ""

    async def trouble(self, expected: str = "") -> str:
        return self.problem or ("" if expected in ("", self.member) else f"not {expected}")

    async def snapshot(self) -> None:
        assert await asyncio.to_thread((self.root / DIRECTORY / "etcd.yaml").exists), "while etcd runs"
        self.snapshots += 1


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
def etcd(tmp_path: Path) -> Etcd:
    return Etcd(tmp_path)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def pods(
    tmp_path: Path, notes: Notes, runtime: Runtime, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> KubeletStaticPods:
    monkeypatch.setattr(replacement, "HEADROOM", 0.5)
    monkeypatch.setattr(replacement, "POLL", 0.02)
    return KubeletStaticPods(
        HostFiles(str(tmp_path)), notes, SystemClock(), runtime, etcd, root=str(tmp_path), start=3.0
    )


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[StandInKubelet]:
    with StandInKubelet(tmp_path, DIRECTORY).runs() as kubelet:
        put(tmp_path, manifest())
        kubelet.wait_running()
        yield kubelet


def put(root: Path, content: bytes, name: str = "etcd.yaml") -> None:
    temp = root / DIRECTORY / ".new"
    temp.write_bytes(content)
    temp.rename(root / DIRECTORY / name)


def names(root: Path) -> list[str]:
    return sorted(entry.name for entry in (root / DIRECTORY).iterdir())


def test_each_change_of_the_directory_survives_a_power_cut(
    tmp_path: Path, pods: KubeletStaticPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is synced after each rename and each removal."""
    (tmp_path / DIRECTORY).mkdir(parents=True)
    synced: list[list[str]] = []
    inode = (tmp_path / DIRECTORY).stat().st_ino

    def fsync(fd: int) -> None:
        assert os.fstat(fd).st_ino == inode
        synced.append(names(tmp_path))

    put(tmp_path, manifest())
    monkeypatch.setattr(os, "fsync", fsync)
    pods._take_away(PATH)
    assert synced == [[f"{HIDDEN}etcd.yaml"]]
    assert pods._put_back(PATH)
    assert synced[1:] == [["etcd.yaml"]]
    pods._take_away(PATH)
    pods._forget(PATH)
    assert synced[3:] == [[]]


async def test_a_replacement_does_not_wait_in_the_back_off(
    tmp_path: Path, pods: KubeletStaticPods, kubelet: StandInKubelet, notes: Notes
) -> None:
    before = (await pods.state(PATH)).uid
    await pods.replace(PATH, file(manifest("etcd:2")), "update-1")
    state = await pods.state(PATH)
    assert state.pod == "kube-system/etcd"
    assert state.problem == ""
    assert state.uid not in ("", before)
    assert kubelet.gap < kubelet.backoff
    assert names(tmp_path) == ["etcd.yaml"]
    assert notes.kept[TAKEN] == ""


async def test_a_container_that_outlives_the_directory_of_its_pod(
    tmp_path: Path, pods: KubeletStaticPods, kubelet: StandInKubelet, runtime: Runtime
) -> None:
    runtime.lingers = 8
    await pods.replace(PATH, file(manifest("etcd:2")), "update-1")
    assert kubelet.gap > 8 * replacement.POLL
    runtime.lingers = 1000
    with pytest.raises(AgentError) as caught:
        await pods.replace(PATH, file(manifest("etcd:3")), "update-2")
    assert caught.value.reason is Reason.STATIC_POD_STUCK
    assert names(tmp_path) == ["etcd.yaml"]


async def test_the_member_is_remembered_until_its_manifest_is_removed(
    pods: KubeletStaticPods, kubelet: StandInKubelet, etcd: Etcd, notes: Notes
) -> None:
    await pods.replace(PATH, file(manifest("etcd:2")), "update-1")
    etcd.member = ""
    await pods.replace(PATH, file(manifest("etcd:3")), "update-2")
    assert notes.kept[replacement.MEMBER] == "update-2 17"
    await pods.replace(PATH, None, "update-3")
    assert notes.kept[replacement.MEMBER] == "update-3 "


async def test_the_stand_in_has_the_pitfalls(tmp_path: Path, kubelet: StandInKubelet) -> None:
    """The reasons for the order of a replacement: without them, the tests above could not fail."""
    put(tmp_path, manifest("etcd:2"))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(kubelet.wait_running)
    assert kubelet.gap > kubelet.stop
    assert kubelet.starts[-1][0] - kubelet.starts[0][0] > kubelet.backoff
    put(tmp_path, manifest("etcd:0"), "etcd.yaml.bak")
    deadline = time.monotonic() + 5
    while len(kubelet.starts) < 3 and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert kubelet.running[kubelet.starts[-1][1]].pod.images == {"etcd:0": ""}
    (tmp_path / DIRECTORY / "etcd.yaml.bak").unlink()
    put(tmp_path, b"{")
    await asyncio.to_thread(kubelet.wait_running, 0)


async def test_the_same_object_restarts_nothing(
    pods: KubeletStaticPods, kubelet: StandInKubelet, tmp_path: Path
) -> None:
    await pods.replace(PATH, file(b"# a comment\n" + manifest()), "update-1")
    assert (tmp_path / DIRECTORY / "etcd.yaml").read_bytes().startswith(b"# a comment")
    assert len(kubelet.starts) == 1
    await pods.replace(PATH, file(b"# a comment\n" + manifest()), "update-1")
    assert len(kubelet.starts) == 1


async def test_removed_and_added(pods: KubeletStaticPods, kubelet: StandInKubelet, tmp_path: Path) -> None:
    await pods.replace(PATH, None, "update-1")
    assert names(tmp_path) == []
    assert kubelet.running == {}
    assert (await pods.state(PATH)).pod == ""
    await pods.replace(PATH, file(manifest("etcd:2")), "update-1")
    assert (await pods.state(PATH)).problem == ""


async def test_a_pod_that_does_not_end(pods: KubeletStaticPods, kubelet: StandInKubelet, tmp_path: Path) -> None:
    kubelet.hangs = True
    with pytest.raises(AgentError) as caught:
        await pods.replace(PATH, file(manifest("etcd:2")), "update-1")
    assert caught.value.reason is Reason.STATIC_POD_STUCK
    assert (tmp_path / DIRECTORY / "etcd.yaml").read_bytes() == manifest()
    kubelet.hangs = False
    await asyncio.sleep(0.1)
    await asyncio.to_thread(kubelet.wait_running)
    assert (await pods.state(PATH)).problem == ""


async def test_a_pod_that_does_not_start(
    pods: KubeletStaticPods, kubelet: StandInKubelet, tmp_path: Path, notes: Notes
) -> None:
    kubelet.broken_image = "etcd:bad"
    with pytest.raises(AgentError) as caught:
        await pods.replace(PATH, file(manifest("etcd:bad")), "update-1")
    assert caught.value.reason is Reason.STATIC_POD_NOT_STARTED
    assert (await pods.state(PATH)).problem
    assert notes.kept[TAKEN] == ""
    await pods.replace(PATH, file(manifest()), "update-1")
    assert (await pods.state(PATH)).problem == ""
    assert names(tmp_path) == ["etcd.yaml"]


async def test_a_cancelled_replacement_puts_the_manifest_back(
    pods: KubeletStaticPods, kubelet: StandInKubelet, tmp_path: Path, notes: Notes
) -> None:
    kubelet.hangs = True
    task = asyncio.create_task(pods.replace(PATH, file(manifest("etcd:2")), "update-1"))
    while names(tmp_path) == ["etcd.yaml"]:
        await asyncio.sleep(0.01)
    assert notes.kept[TAKEN] == PATH
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert names(tmp_path) == ["etcd.yaml"]
    assert (tmp_path / DIRECTORY / "etcd.yaml").read_bytes() == manifest()
    assert notes.kept[TAKEN] == ""


class Killed(BaseException):
    """The end of the process: nothing after it happens, as no handler of a killed process runs."""


class Fuse:
    def __init__(self, blows_at: int) -> None:
        self.left = blows_at

    def wrap(self, target: object, name: str) -> None:
        inner: Callable[..., Any] = getattr(target, name)

        def blocking(*args: Any) -> Any:
            self.burn()
            return inner(*args)

        async def waiting(*args: Any) -> Any:
            self.burn()
            return await inner(*args)

        setattr(target, name, waiting if asyncio.iscoroutinefunction(inner) else blocking)

    def burn(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Killed


CALLS = ("_take_away", "_gone", "_put", "_put_back", "_started")


@pytest.mark.parametrize("at", range(1, 10))
async def test_a_kill_at_every_call_is_resumed(
    tmp_path: Path, pods: KubeletStaticPods, kubelet: StandInKubelet, notes: Notes, at: int
) -> None:
    doomed = KubeletStaticPods(
        HostFiles(str(tmp_path)), notes, SystemClock(), Runtime(), Etcd(tmp_path), root=str(tmp_path), start=3.0
    )
    fuse = Fuse(at)
    for name in CALLS:
        fuse.wrap(doomed, name)
    lasting = Notes()
    lasting.kept = notes.kept
    fuse.wrap(lasting, "keep_note")
    doomed._notes = lasting
    killed = await _killed(doomed.replace(PATH, file(manifest("etcd:2")), "update-1"))
    assert killed is (at < 9), "the fuse must cover every call"
    await pods.recover()
    assert names(tmp_path) == ["etcd.yaml"], "no etcd without a manifest"
    assert notes.kept.get(TAKEN, "") == ""
    await pods.replace(PATH, file(manifest("etcd:2")), "update-1")
    assert (await pods.state(PATH)).problem == ""
    await asyncio.to_thread(kubelet.wait_running)
    assert names(tmp_path) == ["etcd.yaml"]
    assert (tmp_path / DIRECTORY / "etcd.yaml").read_bytes() == manifest("etcd:2")


async def _killed(work: Awaitable[None]) -> bool:
    try:
        await work
    except Killed:
        return True
    return False


async def test_recovery_without_anything_taken(pods: KubeletStaticPods, notes: Notes) -> None:
    assert await pods.recover() == ""
    notes.kept[TAKEN] = "/not/there/etcd.yaml"
    assert await pods.recover() == ""
    assert notes.kept[TAKEN] == ""


async def test_the_recovered_path(tmp_path: Path, pods: KubeletStaticPods, notes: Notes) -> None:
    (tmp_path / DIRECTORY).mkdir(parents=True)
    (tmp_path / DIRECTORY / f"{HIDDEN}etcd.yaml").write_bytes(manifest())
    notes.kept[TAKEN] = PATH
    assert await pods.recover() == PATH
    assert names(tmp_path) == ["etcd.yaml"]


async def test_a_backup_beside_it_is_refused(pods: KubeletStaticPods, kubelet: StandInKubelet, tmp_path: Path) -> None:
    put(tmp_path, manifest(), "etcd.yaml.bak")
    with pytest.raises(AgentError) as caught:
        await pods.replace(PATH, file(manifest("etcd:2")), "update-1")
    assert caught.value.reason is Reason.STATIC_POD_DUPLICATE
    assert (tmp_path / DIRECTORY / "etcd.yaml").read_bytes() == manifest()


async def test_a_pod_of_an_operator_is_refused(
    pods: KubeletStaticPods, kubelet: StandInKubelet, tmp_path: Path
) -> None:
    (tmp_path / "etc/kubernetes/static-pod-resources/etcd-pod-7").mkdir(parents=True)
    with pytest.raises(AgentError) as caught:
        await pods.replace(PATH, file(manifest("etcd:2")), "update-1")
    assert caught.value.reason is Reason.STATIC_POD_OWNED
    assert len(kubelet.starts) == 1


@needs_root
async def test_without_a_kubelet_it_is_only_a_file(tmp_path: Path, pods: KubeletStaticPods) -> None:
    await pods.replace(PATH, file(manifest()), "update-1")
    await pods.replace(PATH, file(manifest("etcd:2")), "update-1")
    assert (tmp_path / DIRECTORY / "etcd.yaml").read_bytes() == manifest("etcd:2")
    assert (await pods.state(PATH)).pod == ""
    await pods.replace(PATH, None, "update-1")
    assert names(tmp_path) == []


async def test_a_broken_manifest_is_replaced_at_once(
    pods: KubeletStaticPods, kubelet: StandInKubelet, tmp_path: Path
) -> None:
    put(tmp_path, b"{")
    await asyncio.to_thread(kubelet.wait_running, 0)
    await pods.replace(PATH, file(manifest("etcd:2")), "update-1")
    assert (await pods.state(PATH)).problem == ""


async def test_before_an_image_of_etcd_changes(
    pods: KubeletStaticPods, kubelet: StandInKubelet, runtime: Runtime, etcd: Etcd
) -> None:
    await pods.replace(PATH, file(manifest("etcd:2")), "update-1")
    assert runtime.ensured == ["etcd:2"]
    assert etcd.snapshots == 1
    await pods.replace(PATH, file(manifest("etcd:2").replace(b"1", b"2")), "update-2")
    assert etcd.snapshots == 1, "another key than the image changes"


async def test_another_member_is_trouble_and_the_way_back_expects_the_first(
    pods: KubeletStaticPods, kubelet: StandInKubelet, etcd: Etcd
) -> None:
    await pods.replace(PATH, file(manifest("etcd:2")), "update-1")
    assert (await pods.state(PATH)).problem == ""
    etcd.member = "18"
    assert (await pods.state(PATH)).problem == "not 17"
    await pods.replace(PATH, file(manifest()), "update-1")
    assert etcd.snapshots == 1
    assert (await pods.state(PATH)).problem == "not 17"
    etcd.member = "17"
    assert (await pods.state(PATH)).problem == ""
    await pods.replace(PATH, file(manifest("etcd:3")), "update-2")
    assert (await pods.state(PATH)).problem == ""


async def test_a_member_that_is_not_ready_is_trouble(
    pods: KubeletStaticPods, kubelet: StandInKubelet, etcd: Etcd
) -> None:
    etcd.problem = "readyz answers 503"
    state = await pods.state(PATH)
    assert state.etcd
    assert state.problem == "readyz answers 503"
