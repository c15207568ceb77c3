# SPDX-License-Identifier: Apache-2.0
"""The methods behind the D-Bus interface of the daemon, without D-Bus."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from nodeagent.agent.loop import Loop
from nodeagent.agent.plan_answer import plan_answer
from nodeagent.agent.report.report import Report
from nodeagent.agent.report.shown_history import ShownHistory
from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile
from nodeagent.core.config.machineconfig import ConfigSource, MachineConfig
from nodeagent.core.plan.entries import entries_by_path
from nodeagent.core.plan.plan import check_disruption
from nodeagent.core.plan.removal import BY_CLUSTER, check_removal
from nodeagent.door import Call
from nodeagent.errors import AgentError, InvalidInput, Refused
from nodeagent.reasons import Reason
from nodeagent.report.plan_diff import drift_diffs
from nodeagent.report.shown_config import config_to_dict
from nodeagent.report.status_json import status_to_dict
from nodeagent.update.history.entry import under_way, update_to_dict
from nodeagent.update.history.lasting import Confirmation, Hold
from nodeagent.update.next.desired import DesiredSource
from nodeagent.update.next.os_fields import not_compared, os_drift
from nodeagent.update.next.preflight import Desired
from nodeagent.update.next.unit_checks import UnitChecks
from nodeagent.update.next.unreadable import load_or_half_way
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.record import half_way, in_effect
from nodeagent.update.run import Ports
from nodeagent.update.stages.compare import mismatches
from nodeagent.update.states import Phase, Prepare


@dataclass(eq=False)
class Api:
    """``parse`` turns text into a desired config, off the loop. ``load`` gives a stored config as it was applied,
    ``valid`` only one that would be accepted today. ``desired_path`` is "" where ``source`` says what is desired."""

    ports: Ports
    loop: Loop
    report: Report
    _: KW_ONLY
    desired_path: str
    source: DesiredSource | None = None
    parse: Callable[[bytes], Awaitable[Desired]]
    load: Callable[[str], Awaitable[Desired]]
    valid: Callable[[str], Awaitable[Desired]]
    desired: Callable[[], Awaitable[Desired | None]]
    read_again: Callable[[], Awaitable[None]]
    # Of features, by the name of the method.
    calls: Mapping[str, Call]
    history_shown: ShownHistory = field(init=False)

    def __post_init__(self) -> None:
        self.history_shown = ShownHistory(self.ports.store)

    def status(self) -> str:
        return json.dumps(status_to_dict(self.report.status, daemon="running"))

    async def plan(
        self,
        text: str,
        *,
        diff: bool = False,
        private: bool = False,
        stage: bool = False,
        allow_lockout: bool = False,
        rollback: bool = False,
    ) -> str:
        """Return the plan of an update of this host to a config, with the checks of ``apply``.

        ``text`` "" is the desired config; raises ``Refused`` (``NoCurrentConfig``) if there is none. With ``rollback``,
        the config is that to which ``rollback`` returns.
        ``diff`` adds the changed texts, ``private`` the numbers of lines of files that not all users can read. With
        ``stage``, the OS of the config is staged, and stays locked; otherwise nothing is changed. With
        ``allow_lockout``, a config with which ``core`` cannot log in has a plan as well.
        """
        if rollback:
            self._refuse_during_update()
            desired: Desired | None = (await self._before_rollback())[0]
        else:
            desired = await self.parse(text.encode()) if text else await self.desired()
        if desired is None:
            raise Refused("there is no desired config yet", reason=Reason.NO_CURRENT_CONFIG)
        self._refuse_during_update()
        confirmed = Confirmation(desired.source.digest, lockout=True) if allow_lockout else None
        update = await (self.loop.stage(desired) if stage else self.loop.check(desired, confirmed))
        answer = await plan_answer(
            self.ports,
            update,
            diff=diff,
            private=private or diff,
            source=self.source,
            rollback=rollback,
        )
        return json.dumps({**answer, "staged": update.target is not None} if stage else answer)

    async def apply(
        self,
        text: str,
        limits: Collection[str] = (),
        hold: Hold | None = None,
        *,
        strict: bool = False,
        removes: int = 0,
        lockout: bool = False,
    ) -> str:
        """Check the config, make it the desired one, and return its digest. The update begins afterwards.

        A config that failed on this host before is tried once more, because an operator requested it. Raises
        ``Refused`` (``DisruptionExceeded``) for an update with more disruption than one of ``limits``, and with
        ``strict`` ``InvalidInput`` (``UnitMissing``) for an entry whose unit exists nowhere.
        The digest of ``hold`` is not used. ``removes`` and ``lockout`` are what the operator confirmed; raises
        ``Refused`` (``RemovesMost``) and ``Unreconcilable`` (``Lockout``) for what was not.
        """
        await self._check_requested(hold)
        desired = await self.parse(text.encode())
        request = ApplyRequest(desired.source.digest, removes=removes, lockout=lockout).held(hold)
        # The limits are checked against a plan, which needs to know from what the update starts.
        if limits or strict:
            self._refuse_during_update()
        # During an update, the state from which the next one begins is not known yet. The config is checked at its
        # turn.
        if limits or strict or self.report.status.phase in (Phase.IDLE, Phase.DEGRADED):
            update = await self.loop.check(desired, request.confirmed)
            for limit in limits:
                check_disruption(update.plan, limit)
            if strict:
                update.check_units()
            check_removal(desired.config.name, update.removal)
        # The request is in the store before the file is written, so that a kill in between never turns the request of
        # an operator into an ordinary change of the file, which would not try a rejected config again.
        async with self.loop.recorded(request, desired):
            await self.ports.files.install(self.desired_path, RegularFile(desired.source.text, 0o600))
        return desired.source.digest

    async def rollback(self, limits: Collection[str] = (), hold: Hold | None = None, *, lockout: bool = False) -> str:
        """Make the previous config the desired one, and return its name. An ordinary update applies it.

        The config that was current is not applied again without a request, even if it is written to the desired file.
        After an update that ended half-way, that is the config that failed. The arguments are as for ``apply``.
        """
        await self._check_requested(hold)
        record = await load_or_half_way(self.ports)
        # An update that waits for a service of the host is Degraded in the status, and goes on.
        for phase in (self.report.status.phase, record.phase):
            if phase not in (Phase.IDLE, Phase.DEGRADED):
                raise Refused(f"an update is under way ({phase})", reason=Reason.UPDATE_UNDER_WAY)
        previous, present = await self._before_rollback()
        request = ApplyRequest(previous.source.digest, present, await self._meaning(present), lockout=lockout)
        update = await self.loop.check(previous, request.confirmed)
        for limit in limits:
            check_disruption(update.plan, limit)
        async with self.loop.recorded(request.held(hold), previous):
            await self.ports.files.install(self.desired_path, RegularFile(previous.source.text, 0o600))
        return previous.config.name

    async def _before_rollback(self) -> tuple[Desired, str]:
        """Return the config to which a rollback returns, and the digest of the one that it takes the place of."""
        record = await load_or_half_way(self.ports)
        present, digest = await self.ports.store.current(), await self.ports.store.previous()
        # From the applied parts of a blocked config, the way back leads to the current one.
        if record.lasting.partial is not None:
            present, digest = record.lasting.partial.desired, present
        if half_way(record):
            failed = "" if record.aborted else record.to_digest
            present, digest = failed or next(iter(record.unfinished), ""), present
        if not digest:
            raise Refused("there is no config before the current one", reason=Reason.NO_PREVIOUS)
        # A config that this version no longer accepts must be refused now, not after the file has been replaced.
        return await self.valid(digest), present

    async def cancel(self, caller: str) -> str:
        """Cancel the update under way, and return what follows. Its end is reported as of any update.

        The config is applied again on request only. Where no cluster decides, the current config is the desired one
        again.
        """
        cancelled = await self.loop.cancel(caller, self._put_back)
        answer = {
            "schema": "nodeagent/cancel/v1",
            "config": cancelled.name,
            "digest": cancelled.digest,
            "update_id": cancelled.update_id,
            "effect": str(cancelled.effect),
            "applied": cancelled.applied,
            **({"reboot": cancelled.reboot} if cancelled.reboot else {}),
            "current": self.report.status.current,
            "desired_by": "file" if self.desired_path else "cluster",
        }
        return json.dumps(answer)

    async def reboot(self, caller: str) -> str:
        """Let an update go on whose reboot an operator held back. Returns its config, "" if there is none."""
        update = self.loop.executor.update
        hold = update.record.lasting.hold if update is not None else None
        if update is None or hold is None or hold.digest != update.digest or not (hold.no_reboot and update.reboots):
            return json.dumps({"schema": "nodeagent/reboot/v1", "config": "", "digest": "", "update_id": ""})
        record = update.record
        async with self.loop.recorded(ApplyRequest(update.digest, requester=caller)):
            pass
        about = {"config": record.to_name, "digest": update.digest, "update_id": record.update_id}
        return json.dumps({"schema": "nodeagent/reboot/v1", **about})

    async def _put_back(self, digest: str) -> None:
        """Make the current config the desired one, if that is ``digest``."""
        current = await self.ports.store.current()
        if not self.desired_path or current in ("", digest):
            return
        # Only the config that was cancelled is replaced: an operator may have written another one since.
        with suppress(InvalidInput):
            wanted = await self.loop.desired.read()
            if wanted is not None and wanted.source.digest == digest:
                text = (await self.load(current)).source.text
                await self.ports.files.install(self.desired_path, RegularFile(text, 0o600))

    def _refuse_during_update(self) -> None:
        """Refuse what needs to know from what the next update starts. One that wrote nothing yet changes nothing."""
        update = self.loop.executor.update
        if update is not None and isinstance(update.record.leg, Prepare) and not update.record.unfinished:
            return
        phase = self.report.status.phase
        if phase not in (Phase.IDLE, Phase.DEGRADED):
            raise Refused(f"an update is under way ({phase})", reason=Reason.UPDATE_UNDER_WAY)

    async def _meaning(self, digest: str) -> str:
        try:
            return (await self.load(digest)).meaning
        except AgentError:
            # A config that cannot be read is avoided by its text.
            return ""

    async def _check_requested(self, hold: Hold | None) -> None:
        """Raise ``Refused`` if no operator may request an update of this host now, or not as ``hold`` says."""
        if not self.desired_path:
            raise Refused(BY_CLUSTER, reason=Reason.CLUSTER_DECIDES)
        for guard in self.ports.guards:
            await guard.may_request(hold, reverts=self.loop.policy.revert)

    async def verify(self, *, diff: bool = False) -> str:
        """Return the drift: how the host differs from its current config, and from the safe parts of a blocked one.

        What still waits of the blocked one is no drift. ``diff`` adds the changed texts.
        """
        digest = await self.ports.store.current()
        if not digest:
            raise Refused("there is no current config yet", reason=Reason.NO_CURRENT_CONFIG)
        record = await load_or_half_way(self.ports)
        name, partial = (await self.load(digest)).config.name, record.lasting.partial
        current = await self.load(in_effect(record, digest))
        wrong = await mismatches(self.ports, current.config, watched=True)
        wrong |= await os_drift(self.ports, current.config)
        # An entry has nothing to be compared with while its unit exists nowhere.
        missing = {
            problem.path: problem.message for problem in await UnitChecks(self.ports.units).missing(current.config)
        }
        diffs = await self._diffs(current.config, wrong) if diff else {}
        open_entries = {**not_compared(current.config), **missing}
        # What no running host can take is no drift.
        for guard in self.ports.guards:
            open_entries |= await guard.not_compared(current.config)
        answer: dict[str, Any] = {
            "schema": "nodeagent/verify/v1",
            "config": name,
            **({"waits": [entry for entry, _ in partial.waits]} if partial is not None else {}),
            "ok": not wrong,
            "drift": [
                {"entry": entry, "why": difference, **({"diff": diffs[entry]} if entry in diffs else {})}
                for entry, difference in sorted(wrong.items())
            ],
            "not_compared": [{"entry": entry, "why": difference} for entry, difference in open_entries.items()],
        }
        return json.dumps(answer)

    async def _diffs(self, config: MachineConfig, wrong: Collection[str]) -> dict[str, str]:
        disk: dict[str, FileTreeEntry] = {}
        for path in [path for path, entry in entries_by_path(config).items() if entry in wrong]:
            # The drift says why an entry cannot be read.
            with suppress(AgentError):
                if (entry := await self.ports.files.capture(path)) is not None:
                    disk[path] = entry
        # difflib needs seconds for large files that have little in common.
        return await asyncio.to_thread(drift_diffs, config, wrong, disk)

    async def config(self, which: str, name: str, *, secrets: bool) -> str:
        """Return the ``current`` or the ``desired`` config, or the kept one of this name, as JSON.

        Values that may be secrets are hidden, unless ``secrets`` asks for them.
        """
        source = await self._source(which, name)
        # A config may have ten megabytes, and other calls are answered in the meantime.
        return await asyncio.to_thread(lambda: json.dumps(config_to_dict(source, secrets=secrets)))

    async def _source(self, which: str, name: str) -> ConfigSource:
        store, source = self.ports.store, None
        if which == "current":
            source = await store.get_config(digest) if (digest := await store.current()) else None
        elif which == "desired":
            source = desired.source if (desired := await self.desired()) is not None else None
        elif (source := await store.config_named(name)) is None:
            raise InvalidInput(f"there is no config {name} in the store", reason=Reason.UNKNOWN_CONFIG)
        if source is None:
            raise Refused(f"there is no {which} config yet", reason=Reason.NO_CURRENT_CONFIG)
        return source

    async def history(self, limit: int) -> str:
        return await self.history_shown.text(limit)

    async def update(self, update_id: str) -> str:
        """Return one update with its plan and its trail, also the one under way; "" is the newest."""
        running = self.loop.executor.under_way
        entry = await self.history_shown.entry(update_id, running.record.update_id if running is not None else "")
        if entry is None:
            assert running is not None
            entry = under_way(running.record, running.plan, self.ports.clock.now())
        return json.dumps(update_to_dict(entry))

    async def reload(self) -> None:
        """Settings, policy and desired config are read again."""
        await self.read_again()
        self.loop.look_again()
