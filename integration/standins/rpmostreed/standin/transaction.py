# SPDX-License-Identifier: Apache-2.0
"""A transaction: its socket, its sysroot with the real lock, its worker thread, and how it ends.

The object outlives Finished until the last peer leaves or `force_close_seconds` are over, and blocks all clients until
then. Before Start it lives as long as its caller's bus name. After Start nothing but its own end stops it.
"""

from __future__ import annotations

import os
import socket
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from integration.standins.rpmostreed.standin import interfaces
from integration.standins.rpmostreed.standin.errors import Busy, Failed, InstantSuccess, StandInError, text_of
from integration.standins.rpmostreed.standin.exported import Exported, emit_on
from integration.standins.rpmostreed.standin.fault_injection import FaultInjection
from integration.standins.rpmostreed.standin.gir import Gio, GLib, OSTree
from integration.standins.rpmostreed.standin.log import log
from integration.standins.rpmostreed.standin.output import Output
from integration.standins.rpmostreed.standin.profile import PEER_PATH, Profile
from integration.standins.rpmostreed.standin.settings import Settings

# The real daemon starts its worker before it answers Start and races with it. Here the worker always wins.
HEAD_START_SECONDS = 0.2


class Host(Protocol):
    """The part of the daemon that a transaction needs. Main thread only, except the attributes."""

    settings: Settings
    faults: FaultInjection

    def describe(self, sender: str) -> str: ...

    def unit_of(self, sender: str) -> str | None: ...

    def lock_layering(self) -> bool: ...

    def reload(self) -> None:
        """Raises Failed."""

    def released(self, transaction: Transaction) -> None: ...

    def request_reboot(self) -> None:
        """Request a reboot, from any thread. An idle callback does it."""

    def call_bus(self, name: str, path: str, interface: str, method: str, body: Any, reply: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Work:
    """Everything that the worker thread may use."""

    host: Host
    profile: Profile
    sysroot: Any  # an OSTree.Sysroot of its own, locked
    repo: Any
    cancellable: Any
    output: Output
    set_title: Callable[[str], None]
    caller_unit: str | None

    def fault_point(self, point: str) -> None:
        self.host.faults.act(point, self.cancellable)

    def stop_if_cancelled(self) -> None:
        if self.cancellable.is_cancelled():
            raise Failed("Operation was cancelled")


Execute = Callable[[Work], None]


class Transaction:
    """Raises Busy when another process holds the sysroot."""

    def __init__(self, host: Host, invocation: Any, title: str | None, execute: Execute, *, to_self: bool) -> None:
        self._host = host
        self._execute = execute
        self._spoke = threading.Event()
        self._finished: Any = None  # parameters of the Finished signal
        self._executed = False
        self._gone = False
        self._force_close: int = 0
        self.method = str(invocation.get_method_name())
        self.sender = str(invocation.get_sender())
        self.path = str(invocation.get_object_path())
        self._parameters = invocation.get_parameters()
        self._cancellable = Gio.Cancellable()
        self._output = Output(self._emit, to_self=to_self)
        self._peers = Exported(
            interfaces.TRANSACTION,
            "/",
            self._handle,
            {
                "Title": GLib.Variant("s", title or ""),
                "InitiatingClientDescription": GLib.Variant("s", host.describe(self.sender)),
            },
        )
        # A transaction whose title was never set has none, which shows as "(null)" in an error text.
        self.title = title
        self._watch: int | None = Gio.bus_watch_name_on_connection(
            invocation.get_connection(), self.sender, Gio.BusNameWatcherFlags.NONE, None, self._caller_vanished
        )
        self._sysroot: Any = None
        self._server: Any = None
        try:
            self._server = self._listen()
            self._lock_sysroot()
        except BaseException:
            self._stop_watching()
            if self._server is not None:
                self._server.stop()
            raise
        self.address = str(self._server.get_client_address())
        self._server.start()

    def is_same(self, invocation: Any) -> bool:
        """GVariant equality: the same options in another order are another request."""
        return self.method == invocation.get_method_name() and bool(self._parameters.equal(invocation.get_parameters()))

    # -- setting up

    def _listen(self) -> Any:
        constant, guid = self._host.settings.profile.constant_peer_path, Gio.dbus_generate_guid()
        if constant:
            Path(PEER_PATH).unlink(missing_ok=True)
        server = Gio.DBusServer.new_sync(
            f"unix:path={PEER_PATH}" if constant else f"unix:abstract=/tmp/dbus-{guid[:10]}",
            Gio.DBusServerFlags.NONE,
            guid,
            None,
            None,
        )
        if constant:
            os.chmod(PEER_PATH, 0o666)  # noqa: PTH101
        server.connect("new-connection", self._new_peer)
        return server

    def _lock_sysroot(self) -> None:
        sysroot = OSTree.Sysroot.new(Gio.File.new_for_path(self._host.settings.sysroot))
        sysroot.initialize()
        sysroot.set_mount_namespace_in_use()
        sysroot.connect("journal-msg", lambda _sysroot, text: self._output.message(text))
        sysroot.load(None)
        self._host.faults.act("lock")
        _, acquired = sysroot.try_lock()
        if not acquired:
            raise Busy("System transaction in progress")
        self._sysroot = sysroot

    # -- the peers

    def _new_peer(self, _server: Any, connection: Any) -> bool:
        self._peers.export(connection)
        connection.connect("closed", self._peer_closed)
        log(f"a process connected to the progress of {self.method}")
        return True

    def _peer_closed(self, connection: Any, *_: Any) -> None:
        self._peers.unexport(connection)
        self._release_if_over()

    def _emit(self, name: str, *values: Any) -> None:
        self._peers.emit(name, *values)
        self._spoke.set()

    def _handle(self, method: str, _parameters: Any, invocation: Any) -> None:
        if method == "Cancel":
            self._cancellable.cancel()
            invocation.return_value(None)
            return
        started = self._watch is not None
        if started:
            self._stop_watching()
            threading.Thread(target=self._work, name=f"txn-{self.method}", daemon=True).start()
            self._spoke.wait(HEAD_START_SECONDS)
        connection = invocation.get_connection()
        invocation.return_value(GLib.Variant("(b)", (started,)))
        if self._finished is not None:
            emit_on(connection, "/", interfaces.TRANSACTION, "Finished", self._finished)

    # -- the work

    def _work(self) -> None:
        # libostree iterates a main context while it pulls: it must not be the one of the main thread.
        context = GLib.MainContext.new()
        context.push_thread_default()
        error: str | None = None
        try:
            self._host.faults.act("start", self._cancellable)
            self._execute(
                Work(
                    host=self._host,
                    profile=self._host.settings.profile,
                    sysroot=self._sysroot,
                    repo=self._sysroot.repo(),
                    cancellable=self._cancellable,
                    output=self._output,
                    set_title=self._set_title,
                    caller_unit=self._host.unit_of(self.sender),
                )
            )
        except InstantSuccess:
            log("fault injection: this transaction did not do its work")
        except (StandInError, GLib.Error) as problem:
            error = text_of(problem)
        except Exception as problem:  # whatever it was, clients must hear of the end
            traceback.print_exc()
            error = f"{type(problem).__name__}: {problem}"
        finally:
            context.pop_thread_default()
        GLib.idle_add(self._done, error, priority=GLib.PRIORITY_DEFAULT)

    def _set_title(self, title: str) -> None:
        self.title = title
        self._peers.set("Title", GLib.Variant("s", title))

    def _done(self, error: str | None) -> bool:
        log(f"Txn {self.method} on {self.path} {'successful' if error is None else f'failed: {error}'}")
        if error is None:
            try:
                self._host.reload()
            except StandInError as problem:
                error = f"Sysroot reload: {problem}"
        self._host.faults.act("finish")
        self._finished = GLib.Variant("(bs)", (error is None, error or ""))
        self._emit("Finished", error is None, error or "")
        self._unlock()
        self._executed = True
        self._force_close = GLib.timeout_add_seconds(self._host.settings.force_close_seconds, self._close_peers)
        self._release_if_over()
        return False

    # -- the end

    def _close_peers(self) -> bool:
        self._force_close = 0
        log("Forcibly closing transaction due to timeout")
        for connection in self._peers.connections:
            self._peers.unexport(connection)
            connection.close(None, None)
        self._release()
        return False

    def _caller_vanished(self, *_: Any) -> None:
        if self._watch is None:
            return
        self._stop_watching()
        log("client disconnected before calling Start; cancelling transaction")
        self._release()

    def _release_if_over(self) -> None:
        if self._finished is not None and not self._peers.connections:
            self._release()

    def _release(self) -> None:
        if self._gone:
            return
        self._gone = True
        if self._force_close:
            GLib.source_remove(self._force_close)
        self._unlock()
        self._server.stop()
        self._server = None  # stopping does not close the socket; being gone does
        if self._host.settings.profile.leaves_socket_file:
            _leave_socket_file()
        for connection in self._peers.connections:
            self._peers.unexport(connection)
            connection.close(None, None)
        self._host.released(self)

    def _unlock(self) -> None:
        if self._sysroot is not None:
            self._sysroot.unlock()
            self._sysroot = None

    def _stop_watching(self) -> None:
        if self._watch is not None:
            Gio.bus_unwatch_name(self._watch)
            self._watch = None


def _leave_socket_file() -> None:
    """A socket without a listener: connections are refused, and its existence proves nothing."""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(PEER_PATH)
