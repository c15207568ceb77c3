# SPDX-License-Identifier: Apache-2.0
"""The Sysroot object: deployments and the active transaction as properties, registration, and Reload."""

from __future__ import annotations

from typing import Any, Protocol

from integration.standins.rpmostreed.standin import interfaces
from integration.standins.rpmostreed.standin.authority import Authority
from integration.standins.rpmostreed.standin.clients import Clients
from integration.standins.rpmostreed.standin.errors import NotFound, StandInError
from integration.standins.rpmostreed.standin.exported import Exported
from integration.standins.rpmostreed.standin.fault_injection import FaultInjection
from integration.standins.rpmostreed.standin.gir import GLib
from integration.standins.rpmostreed.standin.options import Options
from integration.standins.rpmostreed.standin.transaction import Transaction

IDLE = ("", "", "")


class Daemon(Protocol):
    authority: Authority
    clients: Clients
    faults: FaultInjection

    def refresh(self, *, always: bool) -> None:
        """Read deployments again; `always` publishes the OS objects even if nothing changed. Raises Failed."""

    def reload_config(self) -> None: ...

    def os_path(self, name: str) -> str | None: ...


class SysrootObject:
    def __init__(self, daemon: Daemon, path: str) -> None:
        self._daemon = daemon
        self.exported = Exported(
            interfaces.SYSROOT,
            interfaces.SYSROOT_PATH,
            self._handle,
            {
                "Booted": GLib.Variant("o", "/"),
                "Path": GLib.Variant("s", path),
                "ActiveTransaction": GLib.Variant("(sss)", IDLE),
                "ActiveTransactionPath": GLib.Variant("s", ""),
                "AutomaticUpdatePolicy": GLib.Variant("s", "none"),
                "Deployments": GLib.Variant("aa{sv}", []),
            },
        )

    def show_transaction(self, transaction: Transaction | None) -> None:
        if transaction is None:
            who, address = IDLE, ""
        else:
            who, address = (transaction.method, transaction.sender, transaction.path), transaction.address
        self.exported.set("ActiveTransaction", GLib.Variant("(sss)", who))
        self.exported.set("ActiveTransactionPath", GLib.Variant("s", address))

    def show_deployments(self, booted: str, deployments: list[Any]) -> None:
        self.exported.set("Booted", GLib.Variant("o", booted))
        array = GLib.VariantBuilder.new(GLib.VariantType("aa{sv}"))
        for deployment in deployments:
            array.add_value(deployment)
        self.exported.set("Deployments", array.end())

    def _handle(self, method: str, parameters: Any, invocation: Any) -> None:
        try:
            if self._daemon.faults.swallows(method):
                return
            self._daemon.authority.check_sysroot(method, invocation.get_sender())
            getattr(self, f"_{method}")(parameters, invocation)
        except StandInError as error:
            error.reply(invocation)

    def _RegisterClient(self, parameters: Any, invocation: Any) -> None:  # noqa: N802 - the name of the method
        self._daemon.clients.add(invocation.get_sender(), Options(parameters.get_child_value(0)).text("id"))
        invocation.return_value(None)

    def _UnregisterClient(self, _parameters: Any, invocation: Any) -> None:  # noqa: N802
        self._daemon.clients.remove(invocation.get_sender())
        invocation.return_value(None)

    def _Reload(self, _parameters: Any, invocation: Any) -> None:  # noqa: N802
        # From an idle of low priority: whatever is already on its way, like a peer that left, comes first.
        def later() -> bool:
            try:
                self._daemon.refresh(always=True)
            except StandInError as error:
                type(error)(f"Handling reload: {error}").reply(invocation)
            else:
                # What this reload itself found is signalled from an idle, so after this answer.
                invocation.return_value(None)
            return False

        GLib.idle_add(later, priority=GLib.PRIORITY_LOW)

    def _ReloadConfig(self, _parameters: Any, invocation: Any) -> None:  # noqa: N802
        self._daemon.reload_config()
        invocation.return_value(None)

    def _GetOS(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        name = parameters.unpack()[0]
        if name == "":
            invocation.return_value(GLib.Variant("(o)", (self.exported.property("Booted").unpack(),)))
            return
        path = self._daemon.os_path(name)
        if path is None:
            raise NotFound(f'OS name "{name}" not found')
        invocation.return_value(GLib.Variant("(o)", (path,)))
