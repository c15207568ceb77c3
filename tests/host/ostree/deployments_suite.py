# SPDX-License-Identifier: Apache-2.0
"""What the ``Deployments`` port promises, for each back end: the same tests, over what it talks to.

A back end derives a class of tests from ``DeploymentsSuite`` and has a fixture ``subject``. What is special to it is
tested beside that.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from nodeagent import installed
from nodeagent.core.config.image import parse_image
from nodeagent.core.plan.deployment import Deployment, OsTarget, StagedLock, StageProgress, unmet
from nodeagent.door import Door
from nodeagent.errors import AgentError, Refused, Retryable, Terminal
from nodeagent.update.ports.system import Deployments

DIGEST: Final = f"sha256:{'1' * 64}"
IMAGE: Final = OsTarget(image=parse_image(f"quay.io/org/os@{DIGEST}"))
TARGET: Final = OsTarget(image=IMAGE.image, kernel_arguments=("nosmt",), without_kernel_arguments=("quiet",))
ARGUMENTS: Final = OsTarget(kernel_arguments=("nosmt",))
UPDATERS: Final = ("zincati.service", "bootc-fetch-apply-updates.timer")

# What `ostree container` and skopeo below it print, whichever program calls them.
FAILURES: Final = {
    "reading manifest sha256:1 in quay.io/org/os: manifest unknown": (Terminal, "ImageNotFound"),
    "reading manifest sha256:1 in quay.io/org/os: authentication required": (Terminal, "Unauthorized"),
    "Source image rejected: A signature was required, but no signature exists": (Terminal, "SignatureInvalid"),
    "received unexpected HTTP status: 503 Service Unavailable": (Retryable, "RegistryUnreachable"),
    "dial tcp: lookup quay.io: no such host": (Retryable, "RegistryUnreachable"),
    "min-free-space-size 500MB would be exceeded, at least 20 MB requested": (Terminal, "NoSpace"),
    "Failed to find kernel in /usr/lib/modules, /usr/lib/ostree-boot or /boot": (Terminal, "ImageBroken"),
    "something that no release has printed yet": (Retryable, "StageFailed"),
}


class Subject(ABC):
    """A back end on a host in the folder ``root``, with two deployments, the first of which is booted."""

    port: Deployments
    root: Path
    # Sets how much must be free in /sysroot.
    use: Callable[..., None]

    @abstractmethod
    def is_active(self, unit: str) -> None:
        """Let a unit of the host run."""

    @abstractmethod
    def stages_other(self, *, locked: bool) -> str:
        """Another program stages a deployment. Return its id."""

    @abstractmethod
    def unlocks_other(self) -> None:
        """Another program unlocks what is staged."""

    @abstractmethod
    def fail(self, text: str, *, after: bool = False) -> None:
        """Let each work fail with this text; with ``after``, when a deployment was staged."""

    @abstractmethod
    def do_nothing(self) -> None:
        """Let each work succeed without any effect."""

    @abstractmethod
    def images_have(self, *paths: str) -> None:
        """Let the tree of each image that is staged have these files."""

    @abstractmethod
    def hang(self) -> None:
        """Let each staging wait for its end by the agent."""

    @abstractmethod
    def work(self) -> None:
        """Let each work do what it should, again."""

    @property
    @abstractmethod
    def begun(self) -> bool:
        """Whether a staging has begun."""

    @property
    @abstractmethod
    def was_ended(self) -> bool:
        """Whether the agent ended a staging that hung."""

    @property
    @abstractmethod
    def changes(self) -> int:
        """How often something was asked that changes the deployments."""


def has(path: str, tree: Path) -> bool:
    return (tree / path).exists()


async def stage(subject: Subject, target: OsTarget = TARGET, **more: Any) -> Deployment:
    more = {"credentials": None, "replace": "", "on_progress": lambda _progress: None} | more
    return await subject.port.stage(target, **more)


async def fails(subject: Subject, kind: type[AgentError], target: OsTarget = TARGET) -> AgentError:
    with pytest.raises(kind) as caught:
        await stage(subject, target)
    return caught.value


async def first(subject: Subject) -> Deployment:
    return (await subject.port.list())[0]


class DeploymentsSuite:
    async def test_the_booted_one_is_listed(self, subject: Subject) -> None:
        booted, previous = await subject.port.list()
        assert [(each.booted, each.staged, each.locked) for each in (booted, previous)] == [
            (True, False, None),
            (False, False, None),
        ]
        assert booted.id == f"{booted.osname}-{'a' * 64}.0"
        assert booted.kernel_arguments[:2] == ("root=LABEL=root", "quiet")
        assert await subject.port.staged_lock() is None

    @pytest.mark.parametrize("target", [IMAGE, TARGET, ARGUMENTS], ids=["image", "both", "arguments"])
    async def test_a_target_is_staged_locked(self, subject: Subject, target: OsTarget) -> None:
        tasks: list[StageProgress] = []
        staged = await stage(subject, target, on_progress=tasks.append)
        assert (staged.staged, staged.locked, unmet(target, staged)) == (True, True, {})
        assert tasks
        assert (await first(subject)).id == staged.id
        assert await subject.port.staged_lock() == StagedLock(staged.id, locked=True)
        # No reboot boots it, and none of another program either.
        assert await subject.port.boots_of_other("") == ""
        # The same again changes nothing.
        before = subject.changes
        assert await stage(subject, target) == staged
        assert subject.changes == before

    async def test_another_target_takes_its_place(self, subject: Subject) -> None:
        mine = await stage(subject)
        other = await stage(subject, OsTarget(kernel_arguments=("other",)), replace=mine.id)
        assert "nosmt" not in other.kernel_arguments
        assert other.digest != DIGEST
        assert [each.id for each in await subject.port.list() if each.staged] == [other.id]

    @pytest.mark.parametrize("locked", [True, False])
    async def test_one_of_another_program_stays(self, subject: Subject, locked: bool) -> None:
        theirs = subject.stages_other(locked=locked)
        assert (await fails(subject, Refused)).reason == "StagedByOther"
        assert (await first(subject)).id == theirs
        assert subject.changes == 0
        for refused in (subject.port.unlock(theirs), subject.port.rollback()):
            with pytest.raises(Refused):
                await refused
        assert await subject.port.boots_of_other("") == ("" if locked else theirs)
        assert await subject.port.staged_lock() == StagedLock(theirs, locked=locked)

    @pytest.mark.parametrize("text", FAILURES)
    async def test_a_failure_has_its_reason(self, subject: Subject, text: str) -> None:
        kind, reason = FAILURES[text]
        subject.fail(text)
        error = await fails(subject, kind)
        assert error.reason == reason
        assert (await first(subject)).booted
        subject.work()
        assert (await stage(subject)).locked

    async def test_what_a_failure_left_is_removed(self, subject: Subject) -> None:
        subject.fail("error at the end", after=True)
        assert (await fails(subject, Retryable)).reason == "StageFailed"
        assert (await first(subject)).booted
        subject.work()
        assert not unmet(TARGET, await stage(subject))

    async def test_an_image_that_nothing_would_serve(self, subject: Subject) -> None:
        """It would boot, and no agent there could verify it, take it back or update it."""
        titles = ("Other", "Some")
        doors = [Door(title=t, page="x.md", serves_tree=partial(has, f"usr/bin/{t.lower()}")) for t in titles]
        with installed.replaced([*doors, Door(title="None", page="x.md")]):
            subject.images_have("usr/lib/systemd/system/a.service")
            for _ in range(2):
                error = await fails(subject, Terminal)
                assert (error.reason, error.message.endswith(": Other, Some")) == ("ImageUnserved", True), error
                assert (await first(subject)).booted, "it is removed"
            subject.images_have("usr/lib/systemd/system/a.service", "usr/bin/some")
            assert (await stage(subject)).locked

    async def test_a_success_without_a_deployment_is_none(self, subject: Subject) -> None:
        subject.do_nothing()
        assert (await fails(subject, Terminal)).reason == "StageIncomplete"

    async def test_cancelling_ends_the_work(self, subject: Subject) -> None:
        subject.hang()
        staging = asyncio.create_task(stage(subject, credentials=b"{}"))
        async with asyncio.timeout(30):
            while not subject.begun:
                await asyncio.sleep(0.01)
        auth = subject.root / "run/ostree/auth.json"
        assert await asyncio.to_thread(auth.exists)
        staging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await staging
        assert subject.was_ended
        assert not await asyncio.to_thread(auth.exists)
        assert (await first(subject)).booted

    async def test_only_a_good_one_is_unlocked(self, subject: Subject) -> None:
        staged = await stage(subject)
        for _ in range(2):
            await subject.port.unlock(staged.id)
            assert await subject.port.staged_lock() == StagedLock(staged.id, locked=False)
        assert await subject.port.boots_of_other(staged.id) == ""
        with pytest.raises(Refused) as caught:
            await subject.port.unlock(f"{staged.osname}-{'f' * 64}.0")
        assert caught.value.reason == "StagedLost"

    async def test_one_that_another_program_unlocked_is_locked_again(self, subject: Subject) -> None:
        staged = await stage(subject)
        subject.unlocks_other()
        await subject.port.lock_again("another one")
        assert await subject.port.staged_lock() == StagedLock(staged.id, locked=False)
        await subject.port.lock_again(staged.id)
        assert await subject.port.staged_lock() == StagedLock(staged.id, locked=True)

    async def test_a_staged_one_is_discarded(self, subject: Subject) -> None:
        staged = await stage(subject)
        for _ in range(2):
            await subject.port.discard()
            assert [each.staged for each in await subject.port.list()] == [False, False]
        with pytest.raises(Refused) as caught:
            await subject.port.unlock(staged.id)
        assert caught.value.reason == "StagedLost"

    async def test_a_discard_without_an_effect_is_a_failure(self, subject: Subject) -> None:
        await stage(subject)
        subject.do_nothing()
        with pytest.raises(Terminal) as caught:
            await subject.port.discard()
        assert caught.value.reason == "DiscardFailed"

    async def test_a_rollback_is_done_once(self, subject: Subject) -> None:
        _, previous = await subject.port.list()
        for _ in range(2):
            assert await subject.port.rollback() == previous.id
            assert (await first(subject)).id == previous.id
        # It is that of nodeagent, which knows its id.
        assert await subject.port.boots_of_other(previous.id) == ""
        # It is no staged one, but it boots next all the same.
        await subject.port.discard()
        assert (await first(subject)).booted

    async def test_a_rollback_without_an_effect_is_a_failure(self, subject: Subject) -> None:
        subject.do_nothing()
        with pytest.raises(Terminal) as caught:
            await subject.port.rollback()
        assert caught.value.reason == "NoRollback"

    @pytest.mark.parametrize("unit", UPDATERS)
    async def test_another_updater_is_refused(self, subject: Subject, unit: str) -> None:
        await subject.port.check_stageable(ARGUMENTS)
        subject.is_active(unit)
        with pytest.raises(Refused) as caught:
            await subject.port.check_stageable(ARGUMENTS)
        assert (caught.value.reason, unit in caught.value.hint) == ("OtherDriver", True)

    async def test_too_little_space_is_refused(self, subject: Subject) -> None:
        subject.use(min_free=1 << 60)
        with pytest.raises(Terminal) as caught:
            await subject.port.check_stageable(ARGUMENTS)
        assert caught.value.reason == "NoSpace"

    async def test_what_a_staged_one_changes(self, subject: Subject) -> None:
        staged = await stage(subject)
        changes = await subject.port.changes(staged.id, None)
        assert (changes.staged, changes.arguments_added, changes.arguments_removed) == (staged.id, ["nosmt"], ["quiet"])

    async def test_its_unit_has_a_name(self, subject: Subject) -> None:
        unit = subject.port.staging_unit
        assert unit.name.endswith(".service")
        assert unit.is_busy is not None
        assert not await unit.is_busy()
