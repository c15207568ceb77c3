# SPDX-License-Identifier: Apache-2.0
"""nodeagent's adapter in a sandbox: `driver.py PID`, a line of JSON for each request and each answer.

Enters the mount namespace and the root of the process PID after everything is imported: the sandbox has another Python.
There is no systemd inside; the few units that the adapter asks about are answered for here, and a restart of the daemon
is what systemd would do, a signal and a new one when the bus asks for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import ctypes
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from nodeagent.core.plan.deployment import Deployment, StageProgress, target_from_dict
from nodeagent.errors import AgentError
from nodeagent.features.rpmostree.adapter import RpmOstree
from nodeagent.features.rpmostree.transaction import Timing
from nodeagent.host.dbus.client import Bus
from nodeagent.update.ports.host import UnitState

_ = concurrent.futures.thread  # asyncio.to_thread imports it when it is first used
CLONE_NEWNS, CLONE_NEWPID, PR_SET_PDEATHSIG = 0x00020000, 0x20000000, 1
DAEMON = b"rpmostreed.standin\0"
BUS = "unix:path=/run/bus"
ACTIVE = ("ostree-finalize-staged.service", "rpm-ostreed.service")


def enter(pid: str) -> None:
    """The PID namespace as well: GLib refuses a client whose id it cannot see."""
    libc = ctypes.CDLL(None, use_errno=True)
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    handles = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("pid", "mnt")]
    _setns(libc, handles[0], CLONE_NEWPID)
    if child := os.fork():  # only children are in it
        os.waitpid(child, 0)
        os._exit(0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _setns(libc, handles[1], CLONE_NEWNS)
    os.fchdir(root)
    os.chroot(".")
    os.chdir("/")


def _setns(libc: ctypes.CDLL, handle: int, kind: int) -> None:
    if libc.setns(handle, kind) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Services:
    def __init__(self) -> None:
        self.calls: list[str] = []

    async def state(self, unit: str) -> UnitState:
        active = "active" if unit in ACTIVE else "inactive"
        return UnitState(unit, "loaded", active, "", "", "", "", 0, "")

    async def start(self, unit: str, deadline: float) -> None:
        self.calls.append(f"start {unit}")

    async def stop(self, unit: str, deadline: float) -> None:
        self.calls.append(f"stop {unit}")

    async def restart(self, unit: str, deadline: float) -> None:
        self.calls.append(f"restart {unit}")
        for process in Path("/proc").iterdir():
            if process.name.isdecimal() and (process / "cmdline").read_bytes().endswith(DAEMON):
                os.kill(int(process.name), signal.SIGKILL)


def as_json(deployment: Deployment) -> dict[str, Any]:
    values = dataclasses.asdict(deployment)
    return {key: sorted(value) if isinstance(value, frozenset) else value for key, value in values.items()}


class Driver:
    def __init__(self, services: Services, timing: Timing) -> None:
        self._services = services
        self._port = RpmOstree(services, make_bus=lambda: Bus(BUS), min_free=0, timing=timing)

    async def handle(self, do: str, **arguments: Any) -> dict[str, Any]:
        progress: list[StageProgress] = []
        answer: dict[str, Any] = {"result": None}
        try:
            match do:
                case "list":
                    answer["result"] = [as_json(one) for one in await self._port.list()]
                case "guard":
                    await self._port.check_stageable(target_from_dict(arguments["target"]))
                case "stage":
                    async with asyncio.timeout(arguments["cancel_after"]):
                        answer["result"] = as_json(
                            await self._port.stage(
                                target_from_dict(arguments["target"]),
                                credentials=arguments["credentials"] and arguments["credentials"].encode(),
                                replace=arguments["replace"],
                                on_progress=progress.append,
                            )
                        )
                case _:
                    await getattr(self._port, do)(*arguments.values())
        except AgentError as error:
            answer = {"kind": type(error).__mro__[1 if "Bus" in type(error).__name__ else 0].__name__}
            answer |= {"reason": error.reason, "message": error.message}
        except TimeoutError:
            answer = {"kind": "cancelled", "reason": "", "message": ""}
        progress_rows = [[one.task, one.done, one.total, one.fetched] for one in progress]
        return answer | {"progress": progress_rows, "services": self._services.calls}


def main(pid: str, timing: str) -> None:
    enter(pid)
    driver = Driver(Services(), Timing(**json.loads(timing)))
    for line in sys.stdin:
        print(json.dumps(asyncio.run(driver.handle(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
