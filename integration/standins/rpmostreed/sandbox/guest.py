# SPDX-License-Identifier: Apache-2.0
"""Runs in the sandbox: does what the test outside asks for, a line of JSON for each request and each answer.

With `--once REQUEST` it does one call on a connection of its own: that is how another user calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from integration.standins.rpmostreed.sandbox.wire import BUS, Wire

MODULE = "integration.standins.rpmostreed.sandbox.guest"
SERVICE = Path("/usr/share/dbus-1/system-services/org.projectatomic.rpmostree1.service")
BUS_ADDRESS = "unix:path=/run/bus"
CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path=/run/bus</listen>
  <auth>EXTERNAL</auth>
  <servicedir>/run/services</servicedir>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_type="method_call"/><allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/><allow receive_type="signal"/>
    <allow receive_type="method_return"/><allow receive_type="error"/>
  </policy>
  <include>/usr/share/dbus-1/system.d/org.projectatomic.rpmostree1.conf</include>
</busconfig>
"""
# Says what it was asked for and does nothing: there is no systemd here, and the host must not reboot.
SYSTEMCTL = '#!/bin/sh\necho "$@" >>/run/systemctl.log\n'


class Guest:
    def __init__(self) -> None:
        self._wires: dict[int, Wire] = {}

    def handle(self, request: dict[str, Any]) -> Any:
        operation = request.pop("do")
        return getattr(self, f"do_{operation}")(**request)

    def do_bus(self, environment: dict[str, str]) -> None:
        """Start the bus. What it activates gets its environment and writes to /run/daemon.log."""
        Path("/run/bus.conf").write_text(CONFIG)
        services = Path("/run/services")
        services.mkdir()
        (services / SERVICE.name).symlink_to(SERVICE)  # and not polkit's: tests answer for it
        stub = Path("/run/bin/systemctl")
        stub.parent.mkdir()
        stub.write_text(SYSTEMCTL)
        stub.chmod(0o755)
        with Path("/run/daemon.log").open("wb") as log:
            subprocess.Popen(
                ["dbus-daemon", "--config-file=/run/bus.conf", "--nofork", "--nopidfile"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": "/run/bin:/usr/bin:/usr/sbin", "DBUS_SYSTEM_BUS_ADDRESS": BUS_ADDRESS, **environment},
            )

    def do_connect(self, address: str | None = None) -> int:
        identifier = len(self._wires)
        self._wires[identifier] = Wire(address or BUS_ADDRESS, peer=address is not None)
        return identifier

    def do_name(self, wire: int) -> str:
        return str(self._wires[wire].name)

    def do_call(self, wire: int, **call: Any) -> Any:
        return self._wires[wire].call(**call)

    def do_send(self, wire: int, **call: Any) -> int:
        return int(self._wires[wire].send(**call))

    def do_wait(self, wire: int, serial: int, timeout: float) -> Any:
        return self._wires[wire].wait(serial, timeout)

    def do_wait_for(self, wire: int, member: str, timeout: float) -> bool:
        return bool(self._wires[wire].wait_for(member, timeout))

    def do_wait_closed(self, wire: int, timeout: float) -> bool:
        return bool(self._wires[wire].wait_closed(timeout))

    def do_messages(self, wire: int) -> Any:
        return list(self._wires[wire].messages)

    def do_close(self, wire: int) -> None:
        self._wires[wire].close()

    def do_own(self, wire: int, name: str, answers: dict[str, str]) -> Any:
        self._wires[wire].answers.update(answers)
        return self._wires[wire].call(*BUS, "RequestName", f"('{name}', uint32 0)")

    def do_calls(self, wire: int) -> Any:
        return list(self._wires[wire].calls)

    def do_as(self, uid: int, **call: Any) -> Any:
        done = subprocess.run(
            [
                "setpriv",
                f"--reuid={uid}",
                f"--regid={uid}",
                "--clear-groups",
                sys.executable,
                "-P",
                "-m",
                MODULE,
                "--once",
            ],
            input=json.dumps(call),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)

    def do_run(self, argv: list[str], environment: dict[str, str]) -> list[Any]:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, **environment})
        return [done.returncode, done.stdout, done.stderr]

    def do_background(self, program: str) -> str:
        child = subprocess.Popen([sys.executable, "-B", "-c", program], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        return child.stdout.readline().strip()

    def do_read(self, path: str) -> str | None:
        return Path(path).read_text() if Path(path).exists() else None

    def do_write(self, path: str, text: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # In one piece: the daemon may be reading it.
        new = Path(f"{path}.new")
        new.write_text(text)
        new.rename(path)


def main() -> None:
    if sys.argv[1:] == ["--once"]:
        json.dump(Wire(BUS_ADDRESS, peer=False).call(**json.load(sys.stdin)), sys.stdout)
        return
    guest = Guest()
    for line in sys.stdin:
        try:
            answer: Any = {"result": guest.handle(json.loads(line))}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, default=repr), flush=True)


if __name__ == "__main__":
    main()
