# SPDX-License-Identifier: Apache-2.0
"""The extensions image as a local repository: the pull in a unit of its own, and the tree that it leaves."""

from __future__ import annotations

import asyncio
import io
import json
import os
import stat
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nodeagent.core.config.image import ContainerImage
from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.features.rpmostree import extensions_image
from nodeagent.features.rpmostree.extensions import ExtensionsRepository
from nodeagent.features.rpmostree.extensions_image import PACKAGES, FetchRequest, fetch, main
from nodeagent.features.rpmostree.reasons import RpmOstreeReason
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason

STATE = "var/lib/private/nodeagent-extensions"
DIGEST = "sha256:" + "a" * 64
IMAGE = ContainerImage("ostree-unverified-registry:", "quay.example/extensions", DIGEST)
AUTH = Path("/run/auth.json")
REPODATA = f"{PACKAGES}/repodata/repomd.xml"
Entry = tuple[str, bytes | None]  # a directory has no content


def layer(*entries: Entry | tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
                continue
            name, content = entry
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            info.size = len(content or b"")
            archive.addfile(info, io.BytesIO(content or b""))
    return buffer.getvalue()


def skopeo(directory: Path, layers: Sequence[bytes], *, fails: str = "") -> str:
    """Make a program that copies these layers, as skopeo does with the transport ``dir:``, or fails with this text."""
    source = directory / "source"
    source.mkdir()
    for number, content in enumerate(layers):
        (source / f"{number:064}").write_bytes(content)
    manifest = {"layers": [{"digest": f"sha256:{number:064}"} for number in range(len(layers))]}
    (source / "manifest.json").write_text(json.dumps(manifest))
    program = directory / "skopeo"
    copy = f'for last; do :; done; cp -r {source} "${{last#dir:}}"; echo "$*" > {directory}/arguments'
    program.write_text(f"#!/bin/sh\n{f'echo {fails!r} >&2; exit 1' if fails else copy}\n")
    program.chmod(stat.S_IRWXU)
    return str(program)


def tree(directory: Path) -> dict[str, str]:
    return {str(p.relative_to(directory)): p.read_text() for p in sorted(directory.rglob("*")) if p.is_file()}


def test_layers_are_applied_in_order(tmp_path: Path) -> None:
    lower = layer(
        ("usr/share", None), (REPODATA, b"old"), (f"{PACKAGES}/a.rpm", b"a"), (f"./{PACKAGES}/b.rpm", b"b"),
        (f"{PACKAGES}/gone/c.rpm", b"c"), (f"{PACKAGES}/kept/d.rpm", b"d"), ("etc/passwd", b"x"),
    )  # fmt: skip
    upper = layer(
        (REPODATA, b"new"), (f"{PACKAGES}/.wh.a.rpm", b""), (f"{PACKAGES}/.wh.gone", b""),
        (f"{PACKAGES}/kept/e.rpm", b"e"), (f"{PACKAGES}/kept/.wh..wh..opq", b""),
    )  # fmt: skip
    target = tmp_path / "state/target"
    program = skopeo(tmp_path, [lower, upper])
    fetch(f"{IMAGE.name}@{DIGEST}", Path("/run/auth.json"), target, program)
    assert tree(target) == {"b.rpm": "b", "kept/e.rpm": "e", "repodata/repomd.xml": "new"}
    assert [path.name for path in target.parent.iterdir()] == ["target"]
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[-2] == f"docker://{IMAGE.name}@{DIGEST}"
    assert arguments[arguments.index("--authfile") + 1] == "/run/auth.json"


@pytest.mark.parametrize("above", ["usr/.wh.share", "usr/share/.wh.rpm-ostree", f"{PACKAGES}/.wh..wh..opq"])
def test_a_layer_can_replace_all_packages(tmp_path: Path, above: str) -> None:
    lower = layer((REPODATA, b"old"), (f"{PACKAGES}/a.rpm", b"a"))
    target = tmp_path / "target"
    fetch("x", AUTH, target, skopeo(tmp_path, [lower, layer((above, b""), (REPODATA, b"new"))]))
    assert tree(target) == {"repodata/repomd.xml": "new"}


def link(name: str, to: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


@pytest.mark.parametrize(
    "entry",
    [
        link(f"{PACKAGES}/a.rpm", "/etc/shadow", tarfile.SYMTYPE),
        link(f"{PACKAGES}/a.rpm", "etc/shadow", tarfile.LNKTYPE),
        link(f"{PACKAGES}/a", "", tarfile.CHRTYPE),
        link(PACKAGES, "/etc", tarfile.SYMTYPE),
    ],
    ids=["symlink", "hard link", "device", "the directory itself"],
)
def test_links_and_devices_are_rejected(tmp_path: Path, entry: tarfile.TarInfo) -> None:
    target = tmp_path / "target"
    with pytest.raises(ValueError, match="neither a file nor a directory"):
        fetch("x", AUTH, target, skopeo(tmp_path, [layer((REPODATA, b""), entry)]))
    assert not target.exists()
    assert not list(tmp_path.glob("target.*"))


def test_a_path_that_leaves_the_image_is_ignored(tmp_path: Path) -> None:
    bad = layer((REPODATA, b""), (f"{PACKAGES}/../../../../../outside", b"x"), (f"/{PACKAGES}/../outside", b"x"))
    target = tmp_path / "a/b/c/d/e/target"
    fetch("x", AUTH, target, skopeo(tmp_path, [bad]))
    assert tree(target) == {"repodata/repomd.xml": ""}
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [(layer(("etc/x", b"")), "no repository"), (b"", "empty"), (b"no archive at all" * 64, "invalid header")],
)
def test_an_image_without_packages(tmp_path: Path, content: bytes, problem: str) -> None:
    with pytest.raises((ValueError, tarfile.TarError), match=problem):
        fetch("x", AUTH, tmp_path / "target", skopeo(tmp_path, [content]))
    assert not (tmp_path / "target").exists()


def test_a_host_without_skopeo(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="skopeo is not installed"):
        fetch("x", AUTH, tmp_path / "target", str(tmp_path / "absent"))
    assert not list(tmp_path.iterdir())


def test_the_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions_image, "MAX_BYTES", 10)
    big = layer((REPODATA, b""), ("elsewhere", b"x" * 11))
    with pytest.raises(ValueError, match="10 bytes"):
        fetch("x", AUTH, tmp_path / "target", skopeo(tmp_path, [big]))


@pytest.mark.parametrize("manifest", ["{}", "[]", '{"layers": [{"digest": "sha256:../../etc"}]}', "{", '{"layers": 1}'])
def test_a_malformed_manifest(tmp_path: Path, manifest: str) -> None:
    program = skopeo(tmp_path, [])
    (tmp_path / "source/manifest.json").write_text(manifest)
    with pytest.raises(ValueError, match=r"manifest|repository|Expecting"):
        fetch("x", AUTH, tmp_path / "target", program)


@pytest.mark.parametrize(
    "request_text",
    [
        b"{}",
        b"[1]",
        b"x",
        b'{"image": 1, "target": "a"}',
        b'{"image": "x", "target": "../a"}',
        b'{"image": "x", "target": ""}',
    ],
)
def test_a_malformed_request(tmp_path: Path, request_text: bytes) -> None:
    credentials, state = tmp_path / "credentials", tmp_path / "state"
    for directory in (credentials, state):
        directory.mkdir()
    (credentials / "request.json").write_bytes(request_text)
    assert main(credentials, state) == 1
    assert (state / "error").read_text()


class FakeJobs:
    """systemd with nodeagent-extensions.service, whose program is ``work``."""

    def __init__(self, root: Path, work: Callable[[Path], None]) -> None:
        self.calls: list[str] = []
        self.held: asyncio.Event | None = None
        self.requests: list[tuple[FetchRequest, str]] = []
        self._run = root / "run/nodeagent/extensions"
        self._state = root / STATE
        self._work = work

    async def start(self, unit: str, deadline: float) -> None:
        self.calls.append(f"start {unit}")
        if self.held is not None:
            await self.held.wait()
        await asyncio.to_thread(self._do)

    def _do(self) -> None:
        request = FetchRequest.from_json((self._run / "request.json").read_bytes())
        self.requests.append((request, (self._run / "auth.json").read_text()))
        # systemd makes the directory.
        self._state.mkdir(parents=True, exist_ok=True)
        try:
            self._work(self._state / request.target)
        except ValueError as error:
            (self._state / "error").write_text(str(error))
            raise Terminal("the job failed", reason=Reason.JOB_FAILED) from error

    async def stop(self, unit: str, deadline: float) -> None:
        self.calls.append(f"stop {unit}")


def unpacked(target: Path) -> None:
    (target / "repodata").mkdir(parents=True)
    (target / "repodata/repomd.xml").write_text("packages")


def failing(text: str) -> Callable[[Path], None]:
    def work(_target: Path) -> None:
        raise ValueError(text)

    return work


def repository(root: Path, work: Callable[[Path], None] = unpacked) -> tuple[ExtensionsRepository, FakeJobs]:
    jobs = FakeJobs(root, work)
    (root / "etc").mkdir(exist_ok=True)
    return ExtensionsRepository(jobs, root), jobs


async def test_the_packages_are_visible_during_a_staging_only(tmp_path: Path) -> None:
    extensions, jobs = repository(tmp_path)
    await extensions.fetch(IMAGE, b"secret")
    ((request, auth),) = jobs.requests
    assert (request.image, auth) == (f"{IMAGE.name}@{DIGEST}", "secret")
    assert not list((tmp_path / "run").rglob("*.json")), "the pull secret is left behind"
    repo = tmp_path / "etc/yum.repos.d/nodeagent-extensions.repo"
    assert not repo.exists()
    async with extensions.repository(IMAGE):
        target = tmp_path / STATE / request.target
        assert f"baseurl=file://{target}\n" in await asyncio.to_thread(repo.read_text)
        assert repo.stat().st_mode & 0o777 == 0o644
    assert not repo.exists()
    await extensions.fetch(IMAGE, None)
    assert len(jobs.calls) == 1, "packages that are there are not fetched again"
    await asyncio.to_thread(extensions.sweep)
    assert not list((tmp_path / STATE).iterdir())


async def test_the_credentials_of_the_host_are_those_of_rpm_ostree(tmp_path: Path) -> None:
    extensions, jobs = repository(tmp_path)
    (tmp_path / "etc/ostree").mkdir(parents=True)
    await asyncio.to_thread((tmp_path / "etc/ostree/auth.json").write_text, "of the host")
    await extensions.fetch(IMAGE, None)
    assert jobs.requests[0][1] == "of the host"


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("reading manifest: manifest unknown", Terminal, Reason.IMAGE_NOT_FOUND),
        ("unauthorized: authentication required", Terminal, Reason.UNAUTHORIZED),
        ("dial tcp: connection refused", Retryable, Reason.REGISTRY_UNREACHABLE),
        ("[Errno 28] No space left on device", Terminal, Reason.NO_SPACE),
        (
            "Source image rejected: A signature was required, but no signature exists",
            Terminal,
            Reason.SIGNATURE_INVALID,
        ),
        ("skopeo is not installed (/usr/bin/skopeo)", Terminal, RpmOstreeReason.PACKAGE_UNAVAILABLE),
        ("something else", Retryable, Reason.STAGE_FAILED),
    ],
)
async def test_failures_have_the_reasons_of_a_staging(
    tmp_path: Path, text: str, kind: type[AgentError], reason: AnyReason
) -> None:
    extensions, _ = repository(tmp_path, failing(text))
    with pytest.raises(kind) as raised:
        await extensions.fetch(IMAGE, b"secret")
    assert raised.value.reason is reason
    assert "secret" not in str(raised.value)
    assert not list((tmp_path / "run").rglob("*.json")), "the pull secret is left behind"


async def test_cancelling_ends_the_job(tmp_path: Path) -> None:
    extensions, jobs = repository(tmp_path)
    jobs.held = asyncio.Event()
    task = asyncio.create_task(extensions.fetch(IMAGE, b"secret"))
    while not jobs.calls:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [call.split()[0] for call in jobs.calls] == ["start", "stop"]
    assert not list((tmp_path / "run").rglob("*.json")), "the pull secret is left behind"


async def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    extensions, _ = repository(tmp_path)
    await extensions.fetch(IMAGE, b"secret")
    (tmp_path / "etc/yum.repos.d").mkdir()
    for name in ("nodeagent-extensions.repo", "of-an-admin.repo"):
        await asyncio.to_thread((tmp_path / "etc/yum.repos.d" / name).write_text, "left")
    await asyncio.to_thread(extensions.sweep)
    assert [path.name for path in (tmp_path / "etc/yum.repos.d").iterdir()] == ["of-an-admin.repo"]
    assert not list((tmp_path / STATE).iterdir())


def _symbolic(target: Path) -> None:
    unpacked(target)
    (target / "a.rpm").symlink_to("/etc/shadow")


def _hard(target: Path) -> None:
    unpacked(target)
    os.link(target / "repodata/repomd.xml", target / "a.rpm")


def _pipe(target: Path) -> None:
    unpacked(target)
    os.mkfifo(target / "a.rpm")


def _itself(target: Path) -> None:
    unpacked(target.with_name("other"))
    target.symlink_to("other")


@pytest.mark.finding(
    "attack: the unit without rights",
    "What the unit without rights leaves is taken over as files and directories only.",
)
@pytest.mark.parametrize("work", [_symbolic, _hard, _pipe, _itself], ids=["symlink", "hard link", "pipe", "itself"])
async def test_nothing_but_files_and_directories_is_taken_over(tmp_path: Path, work: Callable[[Path], None]) -> None:
    extensions, jobs = repository(tmp_path, work)
    for _ in range(2):
        with pytest.raises(Terminal) as caught:
            await extensions.fetch(IMAGE, b"secret")
        assert caught.value.reason == "StageIncomplete"
    assert len(jobs.calls) == 2, "what was refused is fetched again"
    async with extensions.repository(IMAGE):
        pass
    await asyncio.to_thread(extensions.sweep)
    assert not list((tmp_path / STATE).iterdir())


@pytest.mark.finding(
    "attack: the unit without rights",
    "The error of the unit without rights is read from a file of its own, never by a link.",
)
async def test_no_link_is_followed_for_the_error(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret")

    def work(target: Path) -> None:
        target.with_name("error").symlink_to(tmp_path / "secret")
        raise Terminal("the job failed", reason=Reason.JOB_FAILED)

    extensions, _ = repository(tmp_path, work)
    with pytest.raises(Terminal) as caught:
        await extensions.fetch(IMAGE, None)
    assert caught.value.reason == "JobFailed"
    assert "the secret" not in caught.value.message


async def test_the_service_gets_a_file_of_credentials_also_without_any(tmp_path: Path) -> None:
    extensions, jobs = repository(tmp_path)
    await extensions.fetch(IMAGE, None)
    assert jobs.requests[0][1] == "{}"
