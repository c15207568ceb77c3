# SPDX-License-Identifier: Apache-2.0
"""A manager on the private bus with systemd's habits: jobs, results, subscribers. The tests decide how each job ends.

Signatures as `busctl introspect org.freedesktop.systemd1 /org/freedesktop/systemd1` prints them on systemd 257.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any

from dbus_next import Message, Variant

from nodeagent.host.systemd_jobs import RELATIONS
from tests.support.fake_peer import DBusFault, FakePeer

NAME = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"


class FakeSystemd(FakePeer):
    def __init__(self) -> None:
        super().__init__(NAME)
        self.subscribers: set[str] = set()
        self.jobs: dict[int, str] = {}
        self.next_job = 100
        self.files = {"a.service": "enabled", "b@.service": "static"}
        self.directory = "/usr/lib/systemd/system"
        self.properties: dict[str, Any] = {
            "LoadState": Variant("s", "loaded"),
            "ActiveState": Variant("s", "active"),
            "SubState": Variant("s", "running"),
            "InvocationID": Variant("ay", bytes(range(16))),
            "Type": Variant("s", "notify"),
            "Result": Variant("s", "success"),
            "ExecMainCode": Variant("i", 1),
            "ExecMainStatus": Variant("i", 1),
            "ExecMainExitTimestampMonotonic": Variant("t", 5),
            "NRestarts": Variant("u", 3),
            "Job": Variant("(uo)", [0, "/"]),
            "TriggeredBy": Variant("as", []),
            **{name: Variant("b", True) for name in ("CanStart", "CanStop", "CanReload")},
            "BusName": Variant("s", ""),
            **{name: Variant("as", []) for names in RELATIONS.values() for name in names},
            "InactiveExitTimestampMonotonic": Variant("t", 2**62),  # it starts at each restart
            "ConditionTimestampMonotonic": Variant("t", 1),
            "ConditionResult": Variant("b", True),
            "Conditions": Variant("a(sbbsi)", []),
        }
        self.references: list[tuple[str, str]] = []  # client and unit
        self.unreferenced: set[str] = (
            set()
        )  # units that systemd unloads when they are inactive, unless a client refers to them
        self.units: dict[str, dict[str, Any]] = {}  # properties of single units, where they differ
        self.paths: dict[str, str] = {}
        self.loaded: list[str] = []
        self.start_jobs: list[list[Any]] = []
        self.waiting: dict[int, list[list[Any]]] = {}  # jobs that wait for one
        self.transient: list[tuple[str, list[str]]] = []
        self.transient_properties: list[dict[str, Any]] = []
        self.loaded_names: list[str] = []  # names that are refused to new units, one time each
        self.job_script: Callable[[int, str], Any] = lambda job, unit: self.finish(job, unit, "done")
        self.on("Subscribe", self._subscribe)
        for verb in ("StartUnit", "StopUnit", "RestartUnit", "ReloadUnit"):
            self.on(verb, self._queue)
        self.on("CancelJob", self._cancel)
        self.on("GetJob", self._get_job)
        self.on("LoadUnit", self._load)
        self.on("GetUnit", self._load)
        self.on("Get", self._get)
        self.on("StartTransientUnit", self._transient)
        self.on("ResetFailedUnit", self._reset_failed)
        self.on(
            "ListUnitFiles",
            lambda m: ("a(ss)", ([[f"/usr/lib/systemd/system/{n}", s] for n, s in self.files.items()],)),
        )
        self.on("ListUnitFilesByPatterns", self._files_by_patterns)
        self.on("ListUnitsByPatterns", self._by_patterns)
        self.on("RefUnit", self._ref)
        self.on("ListJobs", lambda m: ("a(usssoo)", (self.start_jobs,)))
        self.on("GetJobAfter", lambda m: ("a(usssoo)", (self.waiting.get(m.body[0], []),)))
        self.on("UnrefUnit", self._unref)
        self.on("GetUnitFileState", self._file_state)
        for verb in ("EnableUnitFiles", "PresetUnitFiles"):
            self.on(verb, lambda m: ("ba(sss)", (True, [])))
        for verb in ("DisableUnitFiles", "MaskUnitFiles"):
            self.on(verb, lambda m: ("a(sss)", ([],)))
        self.on("Reload", self._reload)

    async def finish(self, job: int, unit: str, result: str) -> None:
        self.jobs.pop(job, None)
        self.properties["Job"] = Variant("(uo)", [0, "/"])
        if self.subscribers:
            await self.emit(PATH, MANAGER, "JobRemoved", "uoss", (job, f"{PATH}/job/{job}", unit, result))

    async def say_reloading(self, active: bool) -> None:
        if self.subscribers:
            await self.emit(PATH, MANAGER, "Reloading", "b", (active,))

    def _subscribe(self, message: Message) -> Any:
        if message.sender in self.subscribers:
            raise DBusFault("org.freedesktop.systemd1.AlreadySubscribed")
        self.subscribers.add(message.sender)
        return "", ()

    async def _queue(self, message: Message) -> Any:
        unit, mode = message.body
        assert mode == "replace"
        if unit == "none.service":
            raise DBusFault("org.freedesktop.systemd1.NoSuchUnit", f"Unit {unit} not found.")
        if unit == "masked.service":
            raise DBusFault("org.freedesktop.systemd1.UnitMasked", f"Unit {unit} is masked.")
        job, self.next_job = self.next_job, self.next_job + 1
        self.jobs[job] = unit
        self.properties["Job"] = Variant("(uo)", [job, f"{PATH}/job/{job}"])
        # By default the job is over, and its signal on the way, before the caller has the answer.
        returned = self.job_script(job, unit)
        if asyncio.iscoroutine(returned):
            await returned
        return "o", (f"{PATH}/job/{job}",)

    async def _cancel(self, message: Message) -> Any:
        (job,) = message.body
        if job not in self.jobs:
            raise DBusFault("org.freedesktop.systemd1.NoSuchJob")
        await self.finish(job, self.jobs[job], "canceled")
        return "", ()

    def _get_job(self, message: Message) -> Any:
        if message.body[0] not in self.jobs:
            raise DBusFault("org.freedesktop.systemd1.NoSuchJob")
        return "o", (f"{PATH}/job/{message.body[0]}",)

    def _load(self, message: Message) -> Any:
        # systemd's own escaping; the client must not redo it
        escaped = "".join(c if c.isalnum() else f"_{ord(c):02x}" for c in message.body[0])
        self.paths[f"{PATH}/unit/{escaped}"] = message.body[0]
        return "o", (f"{PATH}/unit/{escaped}",)

    def _unit_files(self, message: Message) -> Any:
        return "a(ss)", ([[f"/usr/lib/systemd/system/{name}", state] for name, state in self.files.items()],)

    def _files_by_patterns(self, message: Message) -> Any:
        _states, patterns = message.body
        rows = [[f"{self.directory}/{name}", state] for name, state in self.files.items() if name in patterns]
        return "a(ss)", (rows,)

    def _by_patterns(self, message: Message) -> Any:
        _states, patterns = message.body
        found = [name for name in self.loaded if any(fnmatch(name, pattern) for pattern in patterns)]
        rows = [[name, "", "loaded", "active", "running", "", f"{PATH}/unit/x", 0, "", "/"] for name in found]
        return "a(ssssssouso)", (rows,)

    def _ref(self, message: Message) -> Any:
        if message.body[0] == "none.service":
            raise DBusFault("org.freedesktop.systemd1.NoSuchUnit", "Unit none.service not found.")
        self.references.append((message.sender, message.body[0]))
        return "", ()

    def _unref(self, message: Message) -> Any:
        self.references.remove((message.sender, message.body[0]))
        return "", ()

    def _get(self, message: Message) -> Any:
        unit = self.paths.get(message.path, "")
        properties = self.properties | {"Id": Variant("s", unit)} | self.units.get(unit, {})
        if unit in self.unreferenced and unit not in [name for _, name in self.references]:
            properties |= {
                "ConditionTimestampMonotonic": Variant("t", 0),
                "ConditionResult": Variant("b", False),
                "Conditions": Variant("a(sbbsi)", []),
            }
        return "v", (properties[message.body[1]],)

    async def _transient(self, message: Message) -> Any:
        unit, mode, properties, _ = message.body
        assert mode == "fail"
        if unit in self.loaded_names:
            self.loaded_names.remove(unit)
            raise DBusFault("org.freedesktop.systemd1.UnitExists", f"Unit {unit} was already loaded.")
        self.transient_properties.append({name: value.value for name, value in properties})
        self.transient.append((unit, dict(properties)["ExecStart"].value[0][1]))
        job, self.next_job = self.next_job, self.next_job + 1
        self.jobs[job] = unit
        returned = self.job_script(job, unit)
        if asyncio.iscoroutine(returned):
            await returned
        return "o", (f"{PATH}/job/{job}",)

    def _reset_failed(self, message: Message) -> Any:
        if message.body[0] == "none.service":
            raise DBusFault("org.freedesktop.systemd1.NoSuchUnit", f"Unit {message.body[0]} not loaded.")
        return "", ()

    def _file_state(self, message: Message) -> Any:
        state = self.files.get(message.body[0])
        if state is None:
            raise DBusFault("org.freedesktop.DBus.Error.FileNotFound", "No such file or directory")
        return "s", (state,)

    async def _reload(self, message: Message) -> Any:
        await self.say_reloading(True)
        await self.say_reloading(False)
        return "", ()
