# SPDX-License-Identifier: Apache-2.0
"""Fetching an image, from a server that fails in each way that a transfer can."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeagent.core.config.fetched import KEPT, kept_at
from nodeagent.errors import AgentError, Refused, Unreachable
from nodeagent.features.extension_images import download
from nodeagent.features.extension_images.cache import ImageCache
from nodeagent.features.extension_images.decide import Image
from nodeagent.features.extension_images.reasons import ExtensionImageReason as Reason
from nodeagent.features.extension_images.settings import ExtensionImageSettings
from tests.features.extension_images.server import CONTENT, DIGEST, Answer, cut, rest, serving, status, whole

SHA512 = f"sha512-{hashlib.sha512(CONTENT).hexdigest()}"


def cache(root: Path, **settings: float) -> ImageCache:
    return ImageCache(ExtensionImageSettings(**settings), str(root))  # type: ignore[arg-type]


def kept(root: Path) -> list[str]:
    directory = root / KEPT.lstrip("/")
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


@pytest.mark.parametrize("digest", [DIGEST, SHA512])
async def test_an_image_is_kept_by_its_digest(tmp_path: Path, digest: str) -> None:
    async with serving(whole()) as server:
        image = server.image(digest=digest)
        await cache(tmp_path).fetch(image)
        await cache(tmp_path).fetch(image)
        assert len(server.heads) == 1, "it is fetched once"
    assert kept(tmp_path) == [f"{digest}.raw"]
    assert (tmp_path / kept_at(digest).lstrip("/")).read_bytes() == CONTENT
    assert await cache(tmp_path).size(image) == len(CONTENT)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([status(404)], "status 404"),
        ([status(503)], "status 503"),
        ([status(206)], "does not have the rest"),
        ([cut(1000)], "cut off"),
        ([cut(0)], "cut off"),
        ([lambda _: [b"nothing of HTTP\r\n\r\n"]], "no HTTP"),
        ([lambda _: []], "."),
        ([status(302, "Location: /x.raw\r\n")], "more than 5 times"),
        ([status(302)], "more than 5 times"),
        ([status(302, "Location: file:///etc/shadow\r\n")], "no plain http"),
        ([status(302, "Location: http://user:secret@127.0.0.1/\r\n")], "no plain http"),
    ],
)
async def test_a_fault_of_the_server_is_an_outage(tmp_path: Path, answers: Sequence[Answer], words: str) -> None:
    async with serving(*answers) as server:
        with pytest.raises(Unreachable, match=words) as raised:
            await cache(tmp_path).fetch(server.image())
    assert raised.value.reason == Reason.EXTENSION_UNREACHABLE
    assert "secret" not in str(raised.value)
    assert not any(name.endswith(".raw") for name in kept(tmp_path))


async def test_no_server_is_an_outage(tmp_path: Path) -> None:
    async with serving(whole()) as server:
        image = server.image()
    with pytest.raises(Unreachable):
        await cache(tmp_path).fetch(image)


async def test_the_next_attempt_continues(tmp_path: Path) -> None:
    async with serving(cut(70000), rest()) as server:
        with pytest.raises(Unreachable):
            await cache(tmp_path).fetch(server.image())
        await cache(tmp_path).fetch(server.image())
        assert [("Range: bytes=70000-" in head) for head in server.heads] == [False, True]
    assert kept(tmp_path) == [f"{DIGEST}.raw"]


async def test_a_server_without_ranges_begins_again(tmp_path: Path) -> None:
    async with serving(cut(70000), whole()) as server:
        with pytest.raises(Unreachable):
            await cache(tmp_path).fetch(server.image())
        await cache(tmp_path).fetch(server.image())
    assert kept(tmp_path) == [f"{DIGEST}.raw"]


async def test_a_range_that_the_server_does_not_have_begins_again(tmp_path: Path) -> None:
    async with serving(cut(70000), status(416), whole()) as server:
        for _ in range(2):
            with pytest.raises(Unreachable):
                await cache(tmp_path).fetch(server.image())
        await cache(tmp_path).fetch(server.image())
    assert kept(tmp_path) == [f"{DIGEST}.raw"]


async def test_another_content_is_refused_for_good(tmp_path: Path) -> None:
    async with serving(whole(CONTENT + b"x")) as server:
        with pytest.raises(Refused) as raised:
            await cache(tmp_path).fetch(server.image())
    assert raised.value.reason == Reason.EXTENSION_DIGEST
    assert kept(tmp_path) == []


async def test_a_content_that_changed_between_two_attempts_is_fetched_again(tmp_path: Path) -> None:
    async with serving(cut(70000), rest(CONTENT[::-1]), whole()) as server:
        for _ in range(2):
            with pytest.raises(Unreachable):
                await cache(tmp_path).fetch(server.image())
        await cache(tmp_path).fetch(server.image())
    assert kept(tmp_path) == [f"{DIGEST}.raw"]


@pytest.mark.parametrize("announced", [True, False])
async def test_an_image_has_a_bound(tmp_path: Path, announced: bool) -> None:
    answer = whole() if announced else lambda _: [b"HTTP/1.1 200 OK\r\n\r\n"]
    async with serving(answer, endless=not announced) as server:
        with pytest.raises(Refused) as raised:
            await cache(tmp_path, max_bytes=500_000).fetch(server.image())
    assert raised.value.reason == Reason.EXTENSION_TOO_LARGE


async def test_a_server_that_is_silent_or_slow_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "STALL", 0.2)
    async with serving(cut(1000), silent=True) as server:
        with pytest.raises(Unreachable, match=r"timed out|no answer"):
            await cache(tmp_path).fetch(server.image())
    monkeypatch.setattr(download, "STALL", 30.0)
    async with serving(cut(1000), silent=True) as server:
        slow = download.Download(server.image(), tmp_path / "part", 1 << 30, timeout=0.3)
        with pytest.raises(Unreachable, match=r"no answer|not complete"):
            await slow.run()


async def test_a_full_disk_is_no_fault_of_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "RESERVE", 1 << 60)
    async with serving(whole()) as server:
        with pytest.raises(Refused) as raised:
            await cache(tmp_path).fetch(server.image())
    assert raised.value.reason == Reason.EXTENSION_NO_SPACE


async def test_redirects_are_followed(tmp_path: Path) -> None:
    async with serving(status(302, "Location: /other?token=secret\r\n"), whole()) as server:
        await cache(tmp_path).fetch(server.image())
        assert server.heads[1].startswith("GET /other?token=secret ")
    assert kept(tmp_path) == [f"{DIGEST}.raw"]


async def test_a_transfer_can_be_cancelled(tmp_path: Path) -> None:
    async with serving(cut(1000), silent=True) as server:
        task = asyncio.ensure_future(cache(tmp_path).fetch(server.image()))
        while not server.heads:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.silent = False
        server.answers = [rest()]
        while True:
            # The thread of the first attempt may still have the file.
            try:
                await cache(tmp_path).fetch(server.image())
            except Unreachable:
                await asyncio.sleep(0.05)
            else:
                break
    assert kept(tmp_path) == [f"{DIGEST}.raw"]


async def test_a_link_in_the_place_of_a_part_is_not_followed(tmp_path: Path) -> None:
    directory = tmp_path / KEPT.lstrip("/")
    directory.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("x")
    (directory / f"{DIGEST}.part").symlink_to(victim)
    async with serving(whole()) as server:
        with pytest.raises(AgentError):
            await cache(tmp_path).fetch(server.image())
    assert victim.read_text() == "x"


async def test_what_ignition_wrote_is_not_fetched(tmp_path: Path) -> None:
    image = Image("/var/lib/extensions/x.raw", DIGEST, "http://127.0.0.1:1/x.raw")
    file = tmp_path / image.path.lstrip("/")
    file.parent.mkdir(parents=True)
    assert await cache(tmp_path).adopt(image.path, DIGEST) is None
    file.write_bytes(CONTENT)
    assert await cache(tmp_path).is_here(image.path, DIGEST)
    assert await cache(tmp_path).adopt(image.path, DIGEST) == kept_at(DIGEST)
    await cache(tmp_path).fetch(image)
    other = await cache(tmp_path).adopt(image.path, f"sha512-{'0' * 128}")
    assert other == kept_at(DIGEST), "another content is kept by its SHA-256, for a revert"


async def test_what_nothing_needs_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / KEPT.lstrip("/")
    directory.mkdir(parents=True)
    names = [f"sha256-{number:064}.raw" for number in range(6)]
    for name in [*names, f"sha256-{7:064}.part", "other.txt"]:
        (directory / name).write_bytes(b"12345678")
    extensions = tmp_path / "var/lib/extensions"
    extensions.mkdir(parents=True)
    (extensions / "x.raw").symlink_to(f"{KEPT}/{names[0]}")
    await cache(tmp_path).prune({names[1].removesuffix(".raw")})
    left = kept(tmp_path)
    assert {names[0], names[1], "other.txt"} <= {*left}
    assert len(left) == 5, "two of those that nothing needs stay"
    await cache(tmp_path, max_bytes=0).prune(())
    assert kept(tmp_path) == sorted([names[0], "other.txt"])
