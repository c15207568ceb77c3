# SPDX-License-Identifier: Apache-2.0
"""The OS object of one osname, with its experimental sibling: every method, most of which start a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from integration.standins.rpmostreed.standin import interfaces
from integration.standins.rpmostreed.standin.authority import Authority
from integration.standins.rpmostreed.standin.cleanup import cleanup, rollback
from integration.standins.rpmostreed.standin.deploy import Deploy
from integration.standins.rpmostreed.standin.deployments import boot_config, by_index
from integration.standins.rpmostreed.standin.errors import Failed, StandInError, bus_failed
from integration.standins.rpmostreed.standin.exported import Exported
from integration.standins.rpmostreed.standin.fault_injection import FaultInjection
from integration.standins.rpmostreed.standin.finalize import Finalize, check_inhibitors
from integration.standins.rpmostreed.standin.gir import GLib
from integration.standins.rpmostreed.standin.kernelargs import KernelArgs
from integration.standins.rpmostreed.standin.options import Options
from integration.standins.rpmostreed.standin.settings import POLICIES, DaemonConfig, Settings
from integration.standins.rpmostreed.standin.transaction import Execute, Transaction, Work

EMPTY = GLib.Variant("a{sv}", {})
CLEANUP_ELEMENTS = ("base", "pending-deploy", "rollback-deploy", "repomd")


class Daemon(Protocol):
    authority: Authority
    faults: FaultInjection
    settings: Settings
    config: DaemonConfig
    sysroot: Any

    def refresh(self, *, always: bool) -> None: ...

    def join(self, invocation: Any) -> Transaction | None:
        """The running transaction if it is for the same request. Raises Busy, or Failed while rebooting."""

    def begin(self, invocation: Any, title: str | None, execute: Execute, *, to_self: bool) -> Transaction:
        """A new one, active from now on. Raises Busy."""


class OsObject:
    def __init__(self, daemon: Daemon, name: str, path: str) -> None:
        self._daemon = daemon
        self.name = name
        self.exported = Exported(
            interfaces.OS,
            path,
            self._handle,
            {
                "BootedDeployment": EMPTY,
                "DefaultDeployment": EMPTY,
                "RollbackDeployment": EMPTY,
                "CachedUpdate": EMPTY,
                "HasCachedUpdateRpmDiff": GLib.Variant("b", False),
                "Name": GLib.Variant("s", name),
            },
        )
        self.experimental = Exported(interfaces.OS_EXPERIMENTAL, path, self._handle_experimental, {})

    def show(self, booted: Any, default: Any, earlier: Any) -> None:
        """Dictionaries of deployments; None shows as an empty one."""
        for key, value in (("Booted", booted), ("Default", default), ("Rollback", earlier)):
            self.exported.set(f"{key}Deployment", EMPTY if value is None else value)

    def _handle(self, method: str, parameters: Any, invocation: Any) -> None:
        try:
            if self._daemon.faults.swallows(method):
                return
            self._daemon.authority.check_os(method, invocation.get_sender(), parameters)
            getattr(self, f"_{method}", self._not_here)(parameters, invocation)
        except StandInError as error:
            error.reply(invocation)
        except GLib.Error as error:
            Failed(str(error.message)).reply(invocation)

    def _handle_experimental(self, method: str, _parameters: Any, invocation: Any) -> None:
        if method == "Moo":
            invocation.return_value(GLib.Variant("(s)", ("🐄\n",)))
        else:
            Failed(f"The stand-in has no {method}").reply(invocation)

    # -- the deploy family. D-Bus names of methods, hence N802.

    def _Deploy(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        modifiers = {"set-revision": parameters.get_child_value(0)}
        self._deploy(invocation, GLib.Variant("a{sv}", modifiers), _child(parameters, 1), allow_downgrade=True)

    def _Upgrade(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        self._deploy(invocation, EMPTY, _child(parameters, 0))

    def _Rebase(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        modifiers = {"set-refspec": parameters.get_child_value(1)}
        revision = Options(_child(parameters, 0)).text("revision")
        if revision is not None:
            modifiers["set-revision"] = GLib.Variant("s", revision)
        self._deploy(invocation, GLib.Variant("a{sv}", modifiers), _child(parameters, 0), allow_downgrade=True)

    def _PkgChange(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        modifiers = {
            "install-packages": parameters.get_child_value(1),
            "uninstall-packages": parameters.get_child_value(2),
        }
        self._deploy(invocation, GLib.Variant("a{sv}", modifiers), _child(parameters, 0), no_pull_base=True)

    def _UpdateDeployment(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        self._deploy(invocation, _child(parameters, 0), _child(parameters, 1))

    def _AutomaticUpdateTrigger(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        booted = self._daemon.sysroot.get_booted_deployment()
        if booted is None or booted.get_osname() != self.name:
            raise Failed(f"Cannot trigger auto-update for offline OS '{self.name}'")
        given = Options(_child(parameters, 0))
        mode = given.text("mode") or "auto"
        policy = self._daemon.config.automatic_update_policy if mode == "auto" else mode
        if policy not in POLICIES:
            raise Failed(f"Invalid value for AutomaticUpdatePolicy: '{policy}'")
        if policy == "none":
            invocation.return_value(GLib.Variant("(bs)", (False, "")))
            return
        options = GLib.VariantDict.new(_child(parameters, 0))
        if not options.contains("output-to-self"):
            options.insert_value("output-to-self", GLib.Variant("b", True))
        if policy == "apply":
            options.insert_value("reboot", GLib.Variant("b", True))
        self._deploy(
            invocation,
            EMPTY,
            options.end(),
            metadata_only=policy == "check",
            answer=lambda address: GLib.Variant("(bs)", (True, address)),
        )

    def _deploy(
        self,
        invocation: Any,
        modifiers: Any,
        options: Any,
        *,
        answer: Callable[[str], Any] | None = None,
        **defaults: bool,
    ) -> None:
        descriptors = invocation.get_message().get_unix_fd_list()
        execute = Deploy(
            self.name,
            Options(modifiers),
            Options(options),
            descriptors=0 if descriptors is None else descriptors.get_length(),
            **defaults,
        )
        first = self._daemon.settings.profile.first_title
        to_self = Options(options).boolean("output-to-self")
        self._start(invocation, first, lambda: execute, to_self=to_self, answer=answer)

    # -- the other transactions

    def _FinalizeDeployment(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        options = Options(_child(parameters, 0))
        title = options.text("initiating-command-line") or "finalize-deployment"
        self._start(invocation, title, lambda: Finalize(self.name, options))

    def _KernelArgs(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        existing, added, replaced, deleted, _ = parameters.unpack()
        options = Options(_child(parameters, 4))
        title = options.text("initiating-command-line") or "kargs"
        self._start(invocation, title, lambda: KernelArgs(self.name, existing, added, replaced, deleted, options))

    def _Cleanup(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        (elements,) = parameters.unpack()

        def checked() -> Execute:
            for element in elements:
                if element not in CLEANUP_ELEMENTS:
                    raise Failed(f"Invalid cleanup type: {element}")
            return lambda work: cleanup(work, self.name, elements)

        self._start(invocation, "cleanup", checked)

    def _ClearRollbackTarget(self, _parameters: Any, invocation: Any) -> None:  # noqa: N802
        self._start(invocation, "clear-rollback", lambda: lambda work: cleanup(work, self.name, ["rollback-deploy"]))

    def _Rollback(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        reboot = Options(_child(parameters, 0)).boolean("reboot")

        def execute(work: Work) -> None:
            rollback(work, self.name, reboot=reboot, before_reboot=lambda: check_inhibitors(work))

        self._start(invocation, "rollback", lambda: execute)

    def _RefreshMd(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        title = "refresh-md" + (" (force)" if Options(_child(parameters, 0)).boolean("force") else "")
        self._start(invocation, title, lambda: lambda work: work.output.message("No enabled rpm-md repositories."))

    def _start(
        self,
        invocation: Any,
        title: str | None,
        prepare: Callable[[], Execute],
        *,
        to_self: bool = False,
        answer: Callable[[str], Any] | None = None,
    ) -> None:
        transaction = self._daemon.join(invocation)
        if transaction is None:
            self._daemon.refresh(always=False)
            transaction = self._daemon.begin(invocation, title, prepare(), to_self=to_self)
        address = transaction.address
        invocation.return_value(GLib.Variant("(s)", (address,)) if answer is None else answer(address))

    # -- plain methods

    def _GetDeploymentBootConfig(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        index, pending = parameters.unpack()
        self._daemon.refresh(always=False)
        deployments = self._daemon.sysroot.get_deployments()
        if index != "":
            target = by_index(deployments, index)
        elif pending:
            target = next((one for one in deployments if one.get_osname() == self.name), None)
        else:
            target = self._daemon.sysroot.get_merge_deployment(self.name)
        if target is None:
            raise Failed(f"No deployments found for os {self.name}")
        invocation.return_value(GLib.Variant.new_tuple(boot_config(target)))

    def _Search(self, parameters: Any, invocation: Any) -> None:  # noqa: N802
        if not parameters.unpack()[0]:
            raise bus_failed("Must specify a term for search")
        self._no_packages(parameters, invocation)

    def _no_packages(self, _parameters: Any, invocation: Any) -> None:
        """There is no repository, so there is nothing in any."""
        invocation.return_value(GLib.Variant("(aa{sv})", ([],)))

    _ListRepos = _GetPackages = _WhatProvides = _no_packages

    def _not_here(self, _parameters: Any, invocation: Any) -> None:
        raise Failed(f"The stand-in has no {invocation.get_method_name()}: it has no RPM and builds no initramfs")


def _child(parameters: Any, index: int) -> Any:
    return parameters.get_child_value(index)
