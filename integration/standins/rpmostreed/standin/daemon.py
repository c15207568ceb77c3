# SPDX-License-Identifier: Apache-2.0
"""The daemon: its connection, its objects, the one transaction, and when it leaves."""

from __future__ import annotations

import os
import random
import re
import subprocess
from typing import Any

from integration.standins.rpmostreed.standin import deployments, interfaces
from integration.standins.rpmostreed.standin.authority import Authority
from integration.standins.rpmostreed.standin.clients import Clients
from integration.standins.rpmostreed.standin.errors import Busy, Failed, StandInError, text_of
from integration.standins.rpmostreed.standin.fault_injection import FaultInjection
from integration.standins.rpmostreed.standin.gir import Gio, GLib, OSTree
from integration.standins.rpmostreed.standin.log import log
from integration.standins.rpmostreed.standin.manager import Manager
from integration.standins.rpmostreed.standin.notify import notify
from integration.standins.rpmostreed.standin.os_object import OsObject
from integration.standins.rpmostreed.standin.settings import Settings, daemon_config
from integration.standins.rpmostreed.standin.sysroot_object import SysrootObject
from integration.standins.rpmostreed.standin.transaction import Execute, Transaction


class Daemon:
    """Objects are there before the name is, as in the real daemon. `leave` is called when it should exit."""

    def __init__(self, connection: Any, settings: Settings) -> None:
        self.settings = settings
        self.config = daemon_config()
        self.running = True
        self.rebooting = False
        self.faults = FaultInjection(settings.faults, self._drop_name)
        self._connection = connection
        self._transaction: Transaction | None = None
        self._idle_exit = 0
        self._oses: dict[str, OsObject] = {}
        self._manager = Manager(connection)
        self.clients = Clients(connection, self._update_status)
        self.authority = Authority(connection, self.clients)
        self._object = SysrootObject(self, settings.sysroot)
        self.sysroot = OSTree.Sysroot.new(Gio.File.new_for_path(settings.sysroot))
        self.sysroot.initialize()
        self.sysroot.set_mount_namespace_in_use()
        self._repo_state: object = None
        self.sysroot.load(None)
        self.repo = self.sysroot.repo()
        self._show_config()
        self.refresh(always=True)
        self._manager.publish(self._object.exported)
        deploy = Gio.File.new_for_path(os.path.join(settings.sysroot, "ostree/deploy"))  # noqa: PTH118
        self._monitor = deploy.monitor(Gio.FileMonitorFlags.NONE, None)
        self._monitor.connect("changed", self._deploy_changed)
        self._update_status()

    # -- deployments

    def refresh(self, *, always: bool) -> None:
        """Publish the deployments if they changed, or `always`. Raises Failed."""
        try:
            self.repo.reload_config(None)
            _, changed = self.sysroot.load_if_changed(None)
            state = os.stat(os.path.join(self.settings.sysroot, "ostree/repo")).st_mtime_ns  # noqa: PTH116, PTH118
            if changed or state != self._repo_state or always:
                self._repo_state = state
                self._publish_deployments()
        except GLib.Error as error:
            raise Failed(text_of(error)) from None

    def reload(self) -> None:
        self.faults.act("reload")
        self.refresh(always=False)

    def os_path(self, name: str) -> str | None:
        return self._oses[name].exported.path if name in self._oses else None

    def _publish_deployments(self) -> None:
        found = self.sysroot.get_deployments()
        described = [deployments.describe(self.sysroot, self.repo, one) for one in found]
        booted = self.sysroot.get_booted_deployment()
        names = {str(one.get_osname()) for one in found}
        for name in names - self._oses.keys():
            os_object = OsObject(self, name, object_path(name))
            self._oses[name] = os_object
            self._manager.publish(os_object.exported, os_object.experimental)
        for name in self._oses.keys() - names:
            self._manager.unpublish(self._oses.pop(name).exported.path)
        for name, os_object in self._oses.items():
            mine = [(one, text) for one, text in zip(found, described, strict=True) if one.get_osname() == name]
            _, earlier = self.sysroot.query_deployments_for(name)

            def text_for(wanted: Any, mine: list[Any] = mine) -> Any:
                return next((text for one, text in mine if wanted is not None and one.equal(wanted)), None)

            os_object.show(text_for(booted), mine[0][1], text_for(earlier))
        path = "/" if booted is None else object_path(booted.get_osname())
        self._object.show_deployments(path, described)

    def _deploy_changed(self, _monitor: Any, _file: Any, _other: Any, event: Any) -> None:
        if event != Gio.FileMonitorEvent.ATTRIBUTE_CHANGED:
            return
        try:
            self.refresh(always=False)
        except StandInError as error:
            log(f"Unable to update state: {error}")

    # -- the transaction

    def join(self, invocation: Any) -> Transaction | None:
        if self.rebooting:
            raise Failed("Reboot initiated, cannot start new transaction")
        self.faults.act("txn")
        if self._transaction is None:
            return None
        if self._transaction.is_same(invocation):
            log("Client joining existing transaction")
            return self._transaction
        raise Busy(
            f"Transaction in progress: {self._transaction.title or '(null)'}\n"
            " You can cancel the current transaction with `rpm-ostree cancel`"
        )

    def begin(self, invocation: Any, title: str | None, execute: Execute, *, to_self: bool) -> Transaction:
        transaction = Transaction(self, invocation, title, execute, to_self=to_self)
        self._transaction = transaction
        self._object.show_transaction(transaction)
        log(f"Initiated txn {transaction.method} for {self.describe(transaction.sender)}: {transaction.path}")
        self._update_status()
        return transaction

    def released(self, transaction: Transaction) -> None:
        if self._transaction is transaction:
            self._transaction = None
            self._object.show_transaction(None)
            self._update_status()

    def describe(self, sender: str) -> str:
        return self.clients.describe(sender)

    def unit_of(self, sender: str) -> str | None:
        return self.clients.unit_of(sender)

    def lock_layering(self) -> bool:
        return self.config.lock_layering

    def call_bus(self, name: str, path: str, interface: str, method: str, body: Any, reply: str) -> Any:
        return self._connection.call_sync(
            name, path, interface, method, body, GLib.VariantType(reply), Gio.DBusCallFlags.NONE, -1, None
        )

    # -- coming and going

    def own_name(self) -> None:
        Gio.bus_own_name_on_connection(self._connection, interfaces.NAME, Gio.BusNameOwnerFlags.NONE, None, None)

    def reload_config(self) -> None:
        try:
            self.config = daemon_config()
        except ValueError as error:
            raise Failed(f"Handling config reload: Reloading daemon configuration: {error}") from None
        self._show_config()
        self.refresh(always=True)
        self._update_status()

    def request_reboot(self) -> None:
        """Request the reboot. An idle callback does it, so that clients receive the success first."""
        self.rebooting = True
        GLib.idle_add(self._reboot, priority=GLib.PRIORITY_LOW)

    def _reboot(self) -> bool:
        log("Initiating reboot requested from transaction")
        subprocess.run(["systemctl", "reboot"], check=False)
        return False

    def _show_config(self) -> None:
        policy = GLib.Variant("s", self.config.automatic_update_policy)
        self._object.exported.set("AutomaticUpdatePolicy", policy)

    def _drop_name(self) -> None:
        self.call_bus(
            "org.freedesktop.DBus",
            "/org/freedesktop/DBus",
            "org.freedesktop.DBus",
            "ReleaseName",
            GLib.Variant("(s)", (interfaces.NAME,)),
            "(u)",
        )

    def _update_status(self) -> None:
        clients, transaction = len(self.clients), self._transaction
        timeout = self.config.idle_exit_timeout
        idle = timeout > 0 and transaction is None and clients == 0
        if idle and not self._idle_exit:
            seconds = timeout + random.randint(0, self.settings.idle_spread_seconds)
            self._idle_exit = GLib.timeout_add_seconds(seconds, self._leave)
            log(f"In idle state; will auto-exit in {seconds} seconds")
        elif not idle and self._idle_exit:
            GLib.source_remove(self._idle_exit)
            self._idle_exit = 0
        if transaction is not None:
            status = f"txn={transaction.method} caller={transaction.sender} path={transaction.path}"
        else:
            status = "idle exit" if idle else "idle"
        notify(f"STATUS=clients={clients}; {status}")

    def _leave(self) -> bool:
        self._idle_exit = 0
        notify("STATUS=Exiting due to idle")
        log("Exiting due to idle")
        self.stop()
        return False

    def stop(self) -> None:
        self.running = False
        GLib.MainContext.default().wakeup()


def object_path(name: str) -> str:
    """Return a name for the bus. It is not reversible: `/` and `-` become `_`, other bytes `_XX`."""
    escaped = "".join(
        character if re.match(r"[A-Za-z0-9_]", character) else "_" if character in "/-" else _escape(character)
        for character in name
    )
    return f"{interfaces.BASE_PATH}/{escaped}"


def _escape(character: str) -> str:
    return "".join(f"_{byte:02X}" for byte in character.encode())
