# SPDX-License-Identifier: Apache-2.0
"""One sandbox, seen from the test: a system of its own, a bus, clients, and the stand-in as the bus activates it."""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from integration.hosts import overlay, process
from integration.standins.rpmostreed import install
from integration.standins.rpmostreed.sandbox.template import Template

HERE = Path(__file__).parent
GUEST = f"{install.PROGRAM}/integration/standins/rpmostreed/sandbox"
NAME = "org.projectatomic.rpmostree1"
SYSROOT = "/org/projectatomic/rpmostree1/Sysroot"
OS = "/org/projectatomic/rpmostree1/tiny"
TIMEOUT = 30.0  # seconds for one request to the sandbox


class SandboxError(Exception):
    """The sandbox did not do what was asked; a D-Bus error is no such thing."""


def prepare(root: Path) -> None:
    """Give a Debian root the stand-in and what runs beside it in the sandbox."""
    install.install_into(root)
    for name in ("__init__.py", "guest.py", "wire.py"):
        target = root / GUEST / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HERE / name, target)
    # Every sandbox starts two of these programs.
    process.run(["chroot", str(root), "python3", "-m", "compileall", "-q", f"/{install.PROGRAM}"], timeout=60)


class Sandbox:
    """Starts at once; close() ends everything in it. `directory` becomes its own."""

    def __init__(self, root: Path, template: Template, directory: Path, **settings: str | int) -> None:
        """`settings` are environment of the stand-in without its prefix, in small letters: like=2022.

        No program of the tiny tree runs, so the sanity check is left out unless `sanity_check` is 1.
        """
        self.template = template
        self._directory = directory
        directory.mkdir(parents=True)
        # -l would share the files with the template and -r follow no hard links: -a keeps those inside.
        process.run(["cp", "-a", str(template.sysroot), str(template.registry), str(directory)], timeout=60)
        arguments = [root, directory / "sysroot", directory / "registry", directory]
        self._process = subprocess.Popen(
            [
                *(
                    "unshare",
                    "--mount",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    sys.executable,
                    "-I",
                    str(HERE / "enter.py"),
                ),
                *map(str, arguments),
                *("/usr/bin/python3", "-BP", "-m", "integration.standins.rpmostreed.sandbox.guest"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "PYTHONPATH": f"/{install.PROGRAM}"},
            text=True,
            bufsize=1,
        )
        skipped = {} if settings.pop("sanity_check", 0) else {"RPMOSTREE_SKIP_SANITYCHECK": "1"}
        environment = {f"RPMOSTREED_STANDIN_{key.upper()}": str(value) for key, value in settings.items()}
        self.ask("bus", environment={"RPMOSTREED_STANDIN_REGISTRY": "/registry", **environment, **skipped})
        self.wait_until(lambda: self.ask("read", path="/run/bus.conf") is not None and self._bus_is_there())

    def ask(self, operation: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": operation, **arguments}) + "\n")
        if not select.select([self._process.stdout], [], [], TIMEOUT)[0]:
            raise SandboxError(f"{operation}: no answer after {TIMEOUT:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise SandboxError(f"{operation}: the sandbox is gone")
        answer = json.loads(line)
        if "failed" in answer:
            raise SandboxError(f"{operation}: {answer['failed']}")
        return answer["result"]

    def wait_until(self, condition: Callable[[], Any], timeout: float = 10.0) -> None:
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                raise SandboxError(f"not so after {timeout:g} s; the daemon said: {self.daemon_log()[-3000:]}")
            time.sleep(0.05)

    def client(self) -> Client:
        """A new connection to the bus."""
        return Client(self, self.ask("connect"))

    def run(self, *argv: str, check: bool = True, **environment: str) -> str:
        status, out, err = self.ask("run", argv=list(argv), environment=environment)
        if check and status != 0:
            raise SandboxError(f"{argv}: {status}: {err}")
        return str(out) + str(err)

    def background(self, program: str) -> str:
        """Run Python until the sandbox ends; returns the first line that it prints."""
        return str(self.ask("background", program=program))

    def read(self, path: str) -> str | None:
        text = self.ask("read", path=path)
        return None if text is None else str(text)

    def exists(self, path: str) -> bool:
        return bool(self.ask("run", argv=["test", "-e", path], environment={})[0] == 0)

    def write(self, path: str, text: str) -> None:
        self.ask("write", path=path, text=text)

    def inject_faults(self, *rules: dict[str, Any]) -> None:
        self.write("/run/rpmostreed-standin.json", json.dumps({"rules": rules}))

    def daemon_log(self) -> str:
        return self.read("/run/daemon.log") or ""

    def systemctl_calls(self) -> list[str]:
        return (self.read("/run/systemctl.log") or "").splitlines()

    def close(self) -> None:
        self._process.kill()  # unshare, and by --kill-child everything in its PID namespace
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._process.wait(10)
        overlay.remove_tree(self._directory)

    def _bus_is_there(self) -> bool:
        try:
            self.client().close()
        except SandboxError:
            return False
        return True


class Connection:
    """A connection that the sandbox holds for us."""

    def __init__(self, sandbox: Sandbox, wire: int) -> None:
        self.sandbox = sandbox
        self.wire = wire

    def send(self, destination: str | None, path: str, interface: str, method: str, body: str = "()") -> int:
        call = {"destination": destination, "path": path, "interface": interface, "method": method, "body": body}
        return int(self.sandbox.ask("send", wire=self.wire, **call))

    def wait(self, serial: int, timeout: float = 20.0) -> dict[str, Any]:
        """`value`, or `error` and `message`, or `timeout`, or `closed`."""
        return dict(self.sandbox.ask("wait", wire=self.wire, serial=serial, timeout=timeout))

    def messages(self) -> list[dict[str, Any]]:
        """All that ever arrived, in order."""
        return list(self.sandbox.ask("messages", wire=self.wire))

    def wait_closed(self, timeout: float) -> bool:
        return bool(self.sandbox.ask("wait_closed", wire=self.wire, timeout=timeout))

    def close(self) -> None:
        self.sandbox.ask("close", wire=self.wire)


class Client(Connection):
    """A client of the stand-in on the bus."""

    @property
    def name(self) -> str:
        return str(self.sandbox.ask("name", wire=self.wire))

    def call(self, path: str, member: str, body: str = "()", timeout: float = 20.0) -> dict[str, Any]:
        """`member` is Interface.Method: `OS.Deploy`, or with a full name such as org.freedesktop.DBus.Peer.Ping."""
        return self.wait(self.call_later(path, member, body), timeout)

    def call_later(self, path: str, member: str, body: str = "()") -> int:
        interface, _, method = member.rpartition(".")
        return self.send(NAME, path, interface if "." in interface else f"{NAME}.{interface}", method, body)

    def result(self, path: str, member: str, body: str = "()") -> Any:
        """Return the result of a successful call; a single value without its tuple."""
        reply = self.call(path, member, body)
        if "value" not in reply:
            raise SandboxError(f"{member}{body}: {reply}; the daemon said: {self.sandbox.daemon_log()[-3000:]}")
        return reply["value"][0] if len(reply["value"]) == 1 else reply["value"]

    def property(self, path: str, interface: str, name: str) -> Any:
        return self.result(path, "org.freedesktop.DBus.Properties.Get", f"('{NAME}.{interface}', '{name}')")

    def deployments(self) -> list[dict[str, Any]]:
        # One that just died or is leaving gets the call and answers nothing: that is for the caller to bear.
        self.sandbox.wait_until(lambda: "value" in self.call(SYSROOT, "Sysroot.Reload"))
        return list(self.property(SYSROOT, "Sysroot", "Deployments"))

    def bus(self, method: str, body: str) -> dict[str, Any]:
        name = "org.freedesktop.DBus"
        return self.wait(self.send(name, "/org/freedesktop/DBus", name, method, body))

    def subscribe(self) -> None:
        self.bus("AddMatch", f"(\"type='signal',sender='{NAME}'\",)")

    def transact(self, member: str, body: str, timeout: float = 20.0, *, leave: bool = True) -> Peer:
        """Call a method of the OS that makes a transaction, start it, and wait for its end.

        Without `leave` the peer stays connected, and the transaction with it.
        """
        peer = self.peer(self.result(OS, f"OS.{member}", body))
        peer.start()
        peer.finished(timeout)
        if leave:
            peer.close()
            self.result(SYSROOT, "Sysroot.Reload")  # answered after the daemon saw the peer leave
        return peer

    def peer(self, address: str) -> Peer:
        return Peer(self.sandbox, self.sandbox.ask("connect", address=address))


class Peer(Connection):
    """A client on the socket of a transaction."""

    def call(self, method: str, timeout: float = 20.0) -> dict[str, Any]:
        return self.wait(self.send(None, "/", f"{NAME}.Transaction", method), timeout)

    def start(self) -> bool:
        return bool(self.call("Start")["value"][0])

    def properties(self) -> dict[str, Any]:
        body = f"('{NAME}.Transaction',)"
        reply = self.wait(self.send(None, "/", "org.freedesktop.DBus.Properties", "GetAll", body))
        return dict(reply["value"][0])

    def finished(self, timeout: float = 20.0) -> tuple[bool, str]:
        """(success, error text) of the first Finished."""
        if not self.sandbox.ask("wait_for", wire=self.wire, member="Finished", timeout=timeout):
            raise SandboxError(f"no Finished; the daemon said: {self.sandbox.daemon_log()[-3000:]}")
        body = next(one["body"] for one in self.messages() if one["member"] == "Finished")
        return bool(body[0]), str(body[1])

    def signals(self) -> list[tuple[str, Any]]:
        """(name, body) of the transaction's signals, in order."""
        return [
            (one["member"], one["body"])
            for one in self.messages()
            if one["kind"] == "signal" and one["interface"] == f"{NAME}.Transaction"
        ]

    def texts(self, name: str = "Message") -> list[str]:
        return [body[0] for signal, body in self.signals() if signal == name]
