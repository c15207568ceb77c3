# SPDX-License-Identifier: Apache-2.0
"""The ``Deployments`` port over libostree and the pull of ostree-ext, as both are on hosts that bootc updates.

bootc itself is not called: it stages without a lock, leaves what it staged when it fails afterwards, and reports
success without having done anything. Here a deployment is locked from its first moment, and has its kernel arguments
at once: an image is pulled into the repository, then ``ostree admin deploy --stage --lock-finalization`` makes the
deployment of its commit. bootc shows and rolls back that one as its own.

The deployments show the result of a command, not its exit status. What a failed or unobserved command left is removed
before the next one. It is never accepted as the result of a later request, and never unlocked (``host.ostree.staged``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from nodeagent import log
from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.config.image import ContainerImage
from nodeagent.core.plan.deployment import Deployment, OsTarget, StageProgress, merged_arguments, unmet
from nodeagent.core.plan.os_changes import OsChanges
from nodeagent.errors import AgentError, Refused, Retryable, Terminal
from nodeagent.features.bootc.decide.kargs import with_image
from nodeagent.features.bootc.host import StagingChecks, refuse_native
from nodeagent.features.bootc.image import CommitReader, arguments_of_tree, refuse_bound
from nodeagent.features.bootc.packages import changed_packages
from nodeagent.features.bootc.reasons import BootcReason
from nodeagent.features.bootc.units import PULL, SLICE, SysrootUnits, UnitTiming, incomplete
from nodeagent.host.dbus.client import Bus
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.ostree.back_end import LibostreeBackEnd
from nodeagent.host.ostree.programs import Services
from nodeagent.host.ostree.staged import OwnDeployments
from nodeagent.host.ostree.sysroot import SysrootFiles, directory_of, image_metadata, lock_is_held, read_sysroot
from nodeagent.host.ostree.trees import Trees
from nodeagent.host.ostree.trees import compare as differences
from nodeagent.reasons import Reason
from nodeagent.update.ports.system import Preparation, StagingUnit

# Deployments that one discard removes at most: a staged one, and those before the booted one.
_MOST: Final = 5
_ORIGIN: Final = "run/nodeagent/staging.origin"

Progress = Callable[[StageProgress], None]


class Bootc(LibostreeBackEnd):
    """Deployments through libostree's commands. ``min_free`` is how many bytes must be free in /sysroot.

    ``root`` and ``commits`` are for tests.
    """

    def __init__(
        self,
        services: Services,
        *,
        make_bus: Callable[[], Bus] = Bus,
        root: Path = Path("/"),
        min_free: int,
        timing: UnitTiming | None = None,
        commits: CommitReader | None = None,
    ) -> None:
        self._timing = timing or UnitTiming()
        super().__init__(services, make_bus, root, self._timing)
        self._commits = commits or CommitReader(root / "ostree/repo")
        self._units = SysrootUnits(services, make_bus, root, self._timing)
        self._checks = StagingChecks(services, root, min_free)

    @property
    def staging_unit(self) -> StagingUnit:
        return StagingUnit(PULL, _never_busy, SLICE)

    def use(self, *, min_free: int) -> None:
        self._checks.space.min_free = min_free

    async def list(self) -> Sequence[Deployment]:
        return (await self._state()).deployments

    async def _state(self) -> SysrootFiles:
        await asyncio.to_thread(refuse_native, self._root)
        await self._soft_reboot.completed()
        return await asyncio.to_thread(read_sysroot, self._root)

    async def check_stageable(self, target: OsTarget) -> None:
        await self._checks.check(await self._state(), target)

    async def preparation(self, _target: OsTarget, /) -> Preparation | None:
        return None

    async def stage(
        self, target: OsTarget, *, credentials: bytes | None, replace: str, on_progress: Progress
    ) -> Deployment:
        # Only results of successful commands count as owned. A killed agent knows them from its record.
        good = await asyncio.to_thread(self._ownership.good)
        own = OwnDeployments(set(good), set(good))
        # What a killed agent began is not observed to its end, so it is ended.
        await self._units.end_left()
        try:
            async with self._credentials.provided(credentials):
                staged = await self._stage(target, own, replace, on_progress)
        except (Terminal, Refused):
            # The result is final, so the record can be closed.
            await asyncio.to_thread(self._ownership.close, own)
            raise
        # Other errors leave the record open: what was staged is not known yet.
        await asyncio.to_thread(self._ownership.close, own)
        await self._prune()
        return staged

    async def _stage(self, target: OsTarget, own: OwnDeployments, replace: str, on_progress: Progress) -> Deployment:
        state = await self._state()
        await self._refuse_foreign(state.first, own, replace)
        if (staged := state.staged) is not None:
            if staged.id in own.good and not unmet(target, staged):
                await self.lock_again(staged.id) if staged.locked is False else None
                return await self._the_staged(staged.id)
            # libostree would take the lock of the next one away together with this one.
            await self._drop(staged.id, own, on_progress)
            state = await self._state()
        commit = await self._commit(target, state, on_progress)
        arguments = merged_arguments(await self._line_of(commit, state.booted), target)
        # The record is opened before the command. After a kill, it identifies the new deployment.
        others = {d.id for d in state.deployments}
        await asyncio.to_thread(self._ownership.open, target, state.booted, others, own)
        try:
            staged = await self._deploy(target, state, commit, arguments, on_progress)
            own.ours.add(staged.id)
            await self._check(target, staged)
        except AgentError as error:
            raise await self._rejected(error, others, own, on_progress) from error
        own.good.add(staged.id)
        return staged

    async def _commit(self, target: OsTarget, state: SysrootFiles, on_progress: Progress) -> str:
        """Return the commit to deploy, which is pulled unless a deployment has it."""
        image = target.image
        if image is None:
            return state.booted.checksum
        assert isinstance(image, ContainerImage)
        # Its layers are here, and its registry may not be: a way back to it, or a repeated update.
        if found := next((d for d in state.deployments if d.digest == image.digest), None):
            return found.checksum
        await self._wait_for_others(on_progress)
        commit = await self._units.pull(image, on_progress)
        digest, _version = await asyncio.to_thread(image_metadata, self._root, commit)
        if digest != image.digest:
            message = f"ostree reported success, but {commit} is of {digest or 'no image'} and not of {image.digest}"
            raise Terminal(message, reason=Reason.STAGE_INCOMPLETE)
        return commit

    async def _line_of(self, commit: str, booted: Deployment) -> Sequence[str]:
        """Return the kernel arguments of the booted deployment with the differences of both images."""
        if commit == booted.checksum:
            return booted.kernel_arguments
        new = await self._commits.facts(commit)
        refuse_bound(new.bound)
        old = await asyncio.to_thread(arguments_of_tree, directory_of(self._root, booted.id))
        return with_image(booted.kernel_arguments, old, new.arguments)

    async def _deploy(
        self, target: OsTarget, state: SysrootFiles, commit: str, arguments: Sequence[str], on_progress: Progress
    ) -> Deployment:
        """Stage a commit, locked and with its kernel arguments, and return the new deployment."""
        on_progress(StageProgress("Staging the deployment"))
        await self._wait_for_others(on_progress)
        # Without another image, the same commit is deployed once more, with the next serial.
        image = target.image.refspec if target.image is not None else state.booted.image
        origin = await asyncio.to_thread(self._write_origin, image, state.booted.origin)
        options = ("--stage", "--lock-finalization", f"--os={state.booted.osname}", f"--origin-file={origin}")
        # The whole line, so that the result does not depend on the deployment from which ostree would take it.
        words = ("--karg-none", *(f"--karg-append={argument}" for argument in arguments))
        await self._units.admin("stage the deployment", "deploy", *options, *words, commit)
        staged = (await self._state()).staged
        if staged is None or staged.checksum != commit or staged.id in {d.id for d in state.deployments}:
            raise incomplete(target, staged)
        return staged

    async def _check(self, target: OsTarget, staged: Deployment) -> None:
        """Raise ``Terminal`` unless ``staged`` is locked, is the target, and a program of it runs."""
        # libostree before 2023.8 knows the file alone.
        if staged.locked is not True:
            await asyncio.to_thread(self._staged.set_legacy)
        if unmet(target, staged):
            raise incomplete(target, staged)
        # The tree of the booted one is the reason of no refusal: it has to be left.
        if target.image is not None:
            await self._refuse_unserved(staged.id)
        # As rpm-ostree does. The kernel of such an image would start, and nothing after it.
        tree = await asyncio.to_thread(directory_of(self._root, staged.id).resolve)
        await self._units.check(tree)

    def _write_origin(self, image: str, refspec: str) -> Path:
        """Write the origin of the new deployment. That of the booted one may have more, such as that it is pinned."""
        path = self._root / _ORIGIN
        key = f"container-image-reference={image}" if image else f"refspec={refspec}"
        with translated("write", str(path)):
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.write_text(f"[origin]\n{key}\n", encoding="utf-8")
        return path

    async def _the_staged(self, deployment: str) -> Deployment:
        staged = (await self._state()).staged
        if staged is None or staged.id != deployment:
            raise Refused(f"{deployment} is not staged any more", reason=Reason.STAGED_LOST)
        return staged

    async def _rejected(
        self, error: AgentError, others: set[str], own: OwnDeployments, on_progress: Progress
    ) -> AgentError:
        """Remove what a failed staging left and return ``error``, extended if that failed too."""
        try:
            staged = (await self._state()).staged
            if staged is not None and staged.id not in others:
                await self._drop(staged.id, own, on_progress)
        except AgentError as problem:
            message = f"{error.message}; its locked result was not removed: {problem.message}"
            return type(error)(message, reason=error.reason)
        return error

    async def _drop(self, deployment: str, own: OwnDeployments, on_progress: Progress) -> None:
        """Remove an owned staged deployment that must not boot. Raises ``Terminal`` (``DiscardFailed``)."""
        # Until it is gone, no reboot boots it.
        await self.lock_again(deployment)
        await self._undeploy(deployment, on_progress)
        own.forget(deployment)
        await asyncio.to_thread(self._ownership.close, own)

    async def _undeploy(self, deployment: str, on_progress: Progress = lambda _progress: None) -> None:
        await self._wait_for_others(on_progress)
        state = await self._state()
        # The command takes a number, so it is read right before.
        index = next((at for at, d in enumerate(state.deployments) if d.id == deployment and not d.booted), None)
        if index is None:
            return
        cause = "ostree reported success"
        try:
            await self._units.admin("remove the staged deployment", "undeploy", str(index))
        except (Retryable, Terminal) as error:
            cause = error.message
        if any(d.id == deployment for d in (await self._state()).deployments):
            message = f"cannot remove the staged deployment: {deployment} still exists: {cause}"
            raise Terminal(message, reason=Reason.DISCARD_FAILED)

    async def discard(self) -> None:
        # The unit of a killed agent could stage after this.
        await self._units.end_left()
        first = (await self._state()).first
        for _ in range(_MOST):
            if first.booted:
                break
            await self._undeploy(first.id)
            first = (await self._state()).first
        else:
            raise Terminal(f"cannot discard: {first.id} still boots next", reason=Reason.DISCARD_FAILED)
        # A deployment of another program may get the same id.
        await asyncio.to_thread(self._ownership.close, OwnDeployments())

    async def rollback(self) -> str:
        state = await self._state()
        state.refuse_staged()
        # The order may be swapped already, by an attempt before a restart.
        chosen = state.previous if state.first.booted else state.first
        if chosen is None:
            raise Terminal("cannot roll back: there is no other deployment", reason=Reason.NO_ROLLBACK)
        if await self._redeployment.needed(state, chosen):
            return await self._redeployment.deploy(chosen, self._state)
        if state.first.booted:
            await self._wait_for_others(lambda _progress: None)
            await self._units.admin("roll back", "set-default", str(state.deployments.index(chosen)))
        state = await self._state()
        if state.first.id != chosen.id:
            raise Terminal("cannot roll back: the same deployment would boot again", reason=Reason.NO_ROLLBACK)
        return chosen.id

    async def changes(self, staged: str, managed: Mapping[str, FileTreeEntry] | None) -> OsChanges:
        state = await self._state()
        deployment = next((d for d in state.deployments if d.id == staged), None)
        if deployment is None:
            raise Refused(f"{staged} is not staged any more", reason=Reason.STAGED_LOST)
        trees = Trees(self._root, state.booted.osname, state.booted.id, staged)

        def compare() -> OsChanges:
            before, after = (directory_of(self._root, each) for each in (state.booted.id, staged))
            return differences(trees, state.booted, deployment, changed_packages(before, after), managed)

        return await asyncio.to_thread(compare)

    async def _wait_for_others(self, on_progress: Progress) -> None:
        """Wait until no other program has the lock of the sysroot. Raises ``Refused`` (``SysrootBusy``)."""
        timing, loop = self._timing, asyncio.get_running_loop()
        give_up = loop.time() + timing.busy
        while await asyncio.to_thread(lock_is_held, self._root):
            if loop.time() >= give_up:
                message = f"another program has had the lock of /sysroot for {timing.busy:g} s"
                raise Refused(message, reason=BootcReason.SYSROOT_BUSY)
            on_progress(StageProgress("Waiting for another program that changes the deployments"))
            await asyncio.sleep(timing.busy_pause)

    async def _prune(self) -> None:
        """Remove old images. A failure is no failure of the staging: the next one tries again."""
        try:
            await self._units.prune()
        except AgentError as error:
            log.get(__name__).warning(f"old images were not removed: {error.message}")


async def _never_busy() -> bool:
    return False
