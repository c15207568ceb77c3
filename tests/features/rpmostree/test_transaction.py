# SPDX-License-Identifier: Apache-2.0
"""A transaction's own socket: what comes when, and what it means when it ends in every possible place."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.errors import Terminal
from nodeagent.features.rpmostree.transaction import End, TransactionResult, cancel, describe, follow
from nodeagent.host.dbus.errors import BusFault
from nodeagent.reasons import Reason
from tests.features.rpmostree.adapters import QUICK, ProgressList
from tests.features.rpmostree.fake_transaction import FakeTransaction

pytestmark = pytest.mark.usefixtures("no_leaked_fds")
OK = TransactionResult(End.FINISHED, True, "")
LOST = TransactionResult(End.LOST)
Make = Callable[[Callable[[FakeTransaction], Awaitable[None]]], Awaitable[FakeTransaction]]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[FakeTransaction] = []

    async def one(script: Callable[[FakeTransaction], Awaitable[None]]) -> FakeTransaction:
        made.append(await FakeTransaction(tmp_path / "txn.sock", script).listen())
        return made[-1]

    yield one
    for transaction in made:
        await transaction.close()


def ignore(_progress: object) -> None:
    return


async def succeed(transaction: FakeTransaction) -> None:
    await transaction.finish()


async def forever(transaction: FakeTransaction) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("answer_first", [False, True])
async def test_finished_before_and_after_the_answer_to_start(make: Make, answer_first: bool) -> None:
    transaction = await make(succeed)
    transaction.answer_first = answer_first
    assert await follow(transaction.address, QUICK, ignore) == OK
    assert transaction.calls == ["Start"]  # No Hello, and no subscription.
    await asyncio.wait_for(transaction.over.wait(), 1)


async def test_one_that_was_finished_already(make: Make) -> None:
    transaction = await make(succeed)
    for _ in range(2):
        assert await follow(transaction.address, QUICK, ignore) == OK


async def test_one_that_failed(make: Make) -> None:
    transaction = await make(lambda t: t.finish(False, "no"))
    assert await follow(transaction.address, QUICK, ignore) == TransactionResult(End.FINISHED, False, "no")


async def test_reported_progress(make: Make) -> None:
    async def talk(transaction: FakeTransaction) -> None:
        await transaction.emit("Message", "s", "Pulling manifest: x")
        await transaction.emit("TaskBegin", "s", "[2/51] Fetching ostree chunk sha256:1")
        await transaction.emit("TaskEnd", "s", "done")
        await transaction.emit("ProgressEnd", "")
        await transaction.emit("PercentProgress", "su", "Importing packages (3/7)", 0)
        body = ((1, 2), (3, 4), (5, 6, 7), (8, 9, 10, 11), (12, 40), (4096, 5))
        await transaction.emit("DownloadProgress", "(tt)(uu)(uuu)(uuut)(uu)(tt)", *map(list, body))
        await transaction.emit("Unheard", "i", 1)
        await transaction.finish()

    progress = ProgressList()
    transaction = await make(talk)
    assert await follow(transaction.address, QUICK, progress.append) == OK
    assert [(p.task, p.done, p.total, p.fetched) for p in progress] == [
        ("Pulling manifest: x", 0, 0, None),
        ("Fetching ostree chunk sha256:1", 1, 51, None),
        ("Importing packages", 3, 7, None),
        ("Fetching objects", 12, 40, 4096),
    ]


# -- the other side goes away -----------------------------------------------------------------------------------------


async def test_a_socket_without_a_listener(tmp_path: Path) -> None:
    path = tmp_path / "txn.sock"
    with socket.socket(socket.AF_UNIX) as stale:  # asyncio's servers take it with them since Python 3.13
        stale.bind(str(path))
    assert path.exists()
    assert await follow(f"unix:path={path}", QUICK, ignore) == LOST


async def test_a_connection_that_the_kernel_denies(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """SELinux denies it to root as well. It is an error: a lost transaction would be requested again."""
    transaction = await make(succeed)

    class Denied(socket.socket):
        def connect(self, _address: object) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("nodeagent.host.dbus.connection.socket.socket", Denied)
    with pytest.raises(BusFault, match="Permission denied") as caught:
        await follow(transaction.address, QUICK, ignore)
    assert isinstance(caught.value, Terminal)
    assert caught.value.reason == Reason.PERMISSION_DENIED
    assert transaction.calls == []


async def test_no_socket_at_all(tmp_path: Path) -> None:
    assert await follow(f"unix:path={tmp_path}/none", QUICK, ignore) == LOST


@pytest.mark.parametrize("auth", ["hang", "close", "gone"])
async def test_a_server_that_ends_during_authentication(make: Make, auth: str) -> None:
    transaction = await make(succeed)
    transaction.auth = auth
    assert await follow(transaction.address, QUICK, ignore) == LOST


async def test_a_server_that_closes_instead_of_answering(make: Make) -> None:
    transaction = await make(lambda t: t.close())
    assert await follow(transaction.address, QUICK, ignore) == LOST


async def test_a_server_that_closes_in_the_middle(make: Make) -> None:
    async def die(transaction: FakeTransaction) -> None:
        await transaction.emit("TaskBegin", "s", "Staging deployment")
        await asyncio.sleep(0.1)
        await transaction.close()

    transaction = await make(die)
    assert await follow(transaction.address, QUICK, ignore) == LOST


async def test_a_server_that_closes_right_after_the_end(make: Make) -> None:
    async def leave(transaction: FakeTransaction) -> None:
        await transaction.finish()
        await transaction.close()

    transaction = await make(leave)  # Start is never answered, yet it is finished
    assert await follow(transaction.address, QUICK, ignore) == OK


# -- no end -----------------------------------------------------------------------------------------------------------


async def test_silence_is_cancelled(make: Make) -> None:
    async def obey(transaction: FakeTransaction) -> None:
        await transaction.cancelled.wait()
        await transaction.emit("Message", "s", "one more thing")
        await transaction.finish(False, "While pulling x: Operation was cancelled")

    transaction = await make(obey)
    outcome = await follow(transaction.address, replace(QUICK, stall=0.2), ignore)
    assert (outcome.end, outcome.success, outcome.stalled) == (End.FINISHED, False, True)


async def test_one_that_succeeds_although_it_was_cancelled(make: Make) -> None:
    async def finish_anyway(transaction: FakeTransaction) -> None:
        await transaction.cancelled.wait()
        await transaction.finish(True)

    transaction = await make(finish_anyway)
    assert (await follow(transaction.address, replace(QUICK, stall=0.2), ignore)).success


async def test_one_that_does_not_care_about_cancel(make: Make) -> None:
    transaction = await make(forever)
    outcome = await follow(transaction.address, replace(QUICK, stall=0.2), ignore)
    assert outcome == TransactionResult(End.STUCK, stalled=True)
    assert transaction.cancelled.is_set()


async def test_any_signal_is_a_sign_of_life(make: Make) -> None:
    async def slowly(transaction: FakeTransaction) -> None:
        for _ in range(8):
            await transaction.emit("TaskEnd", "s", "done")
            await asyncio.sleep(0.5)
        await transaction.finish()

    transaction = await make(slowly)
    assert await follow(transaction.address, replace(QUICK, stall=3.0, total=60.0), ignore) == OK


async def test_permanently_busy_has_an_end_too(make: Make) -> None:
    async def busily(transaction: FakeTransaction) -> None:
        while not transaction.cancelled.is_set():
            await transaction.emit("TaskEnd", "s", "done")
            await asyncio.sleep(0.05)
        await transaction.finish(False, "cancelled")

    transaction = await make(busily)
    assert (await follow(transaction.address, replace(QUICK, total=0.3), ignore)).stalled


# -- foreign transactions ---------------------------------------------------------------------------------------------


async def test_who_began_it_and_what_it_is(make: Make) -> None:
    transaction = await make(succeed)
    transaction.title = "upgrade"
    title, client = await describe(transaction.address, QUICK)
    assert (title, "uid:0" in client) == ("upgrade", True)
    assert not transaction.started.is_set()
    await transaction.close()
    assert await describe(transaction.address, QUICK) == ("", "")


async def test_cancel_without_waiting(make: Make) -> None:
    transaction = await make(forever)
    await cancel(transaction.address, QUICK)
    assert transaction.calls == ["Cancel"]
    await transaction.close()
    await cancel(transaction.address, QUICK)
