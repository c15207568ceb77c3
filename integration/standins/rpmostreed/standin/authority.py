# SPDX-License-Identifier: Apache-2.0
"""Authorization: root may do everything; for other users polkit is called synchronously in the main thread.

A password prompt of polkit therefore blocks the method calls of all clients, as in the real daemon.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from integration.standins.rpmostreed.standin.clients import Clients
from integration.standins.rpmostreed.standin.errors import bus_failed, denied, text_of
from integration.standins.rpmostreed.standin.gir import Gio, GLib
from integration.standins.rpmostreed.standin.interfaces import NAME
from integration.standins.rpmostreed.standin.options import Options

ALLOW_INTERACTION = 1
POLKIT_TIMEOUT_MS = 2**31 - 1  # an operator types a password

_REFRESH = (
    "GetDeploymentsRpmDiff",
    "GetCachedDeployRpmDiff",
    "DownloadDeployRpmDiff",
    "GetCachedUpdateRpmDiff",
    "DownloadUpdateRpmDiff",
    "GetCachedRebaseRpmDiff",
    "DownloadRebaseRpmDiff",
    "RefreshMd",
)
_OS_ACTIONS = {
    **dict.fromkeys(_REFRESH, "repo-refresh"),
    "ModifyYumRepo": "repo-modify",
    "Deploy": "deploy",
    "Upgrade": "upgrade",
    "AutomaticUpdateTrigger": "upgrade",
    "Rebase": "rebase",
    "SetInitramfsState": "bootconfig",
    "KernelArgs": "bootconfig",
    "InitramfsEtc": "bootconfig",
    "Cleanup": "cleanup",
    "Rollback": "rollback",
    "ClearRollbackTarget": "rollback",
    "PkgChange": "install-uninstall-packages",
    "FinalizeDeployment": "finalize-deployment",
}
_OPEN = {"GetDeploymentBootConfig", "ListRepos", "WhatProvides", "GetPackages", "Search"}


class Authority:
    def __init__(self, connection: Any, clients: Clients) -> None:
        self._connection = connection
        self._clients = clients

    def check_os(self, method: str, sender: str, parameters: Any) -> None:
        """Raises AccessDenied, or Failed where polkit cannot be asked."""
        if self._clients.uid_of(sender) == 0 or method in _OPEN:
            return
        if method == "UpdateDeployment":
            actions = _update_actions(parameters)
        else:
            actions = [_OS_ACTIONS[method]] if method in _OS_ACTIONS else []
        if not actions or not all(self._ask(sender, action, ALLOW_INTERACTION) for action in actions):
            raise denied(f"rpmostreed OS operation {method} not allowed for user")

    def check_sysroot(self, method: str, sender: str) -> None:
        uid = self._clients.uid_of(sender)
        if uid == 0 or method in ("GetOS", "Reload"):
            return
        if method == "ReloadConfig":
            allowed = self._ask(sender, "reload-daemon", ALLOW_INTERACTION)
        else:
            allowed = _has_active_session(uid) or self._ask(sender, "client-management", 0)
        if not allowed:
            raise denied(f"rpmostreed Sysroot operation {method} not allowed for user")

    def _ask(self, sender: str, action: str, flags: int) -> bool:
        subject = ("system-bus-name", {"name": GLib.Variant("s", sender)})
        try:
            reply = self._connection.call_sync(
                "org.freedesktop.PolicyKit1",
                "/org/freedesktop/PolicyKit1/Authority",
                "org.freedesktop.PolicyKit1.Authority",
                "CheckAuthorization",
                GLib.Variant("((sa{sv})sa{ss}us)", (subject, f"{NAME}.{action}", {}, flags, "")),
                GLib.VariantType("((bba{ss}))"),
                Gio.DBusCallFlags.NONE,
                POLKIT_TIMEOUT_MS,
                None,
            )
        except GLib.Error as error:
            raise bus_failed(f"Authorization error: {text_of(error)}") from None
        return bool(reply.unpack()[0][0])


def _update_actions(parameters: Any) -> list[str]:
    modifiers, options = Options(parameters.get_child_value(0)), Options(parameters.get_child_value(1))
    actions = ["bootconfig"] if options.boolean("no-initramfs") else []
    if modifiers.text("set-refspec") is not None:
        actions.append("rebase")
    elif modifiers.text("set-revision") is not None:
        actions.append("deploy")
    elif not options.boolean("no-pull-base"):
        actions.append("upgrade")
    layering = ("install-packages", "uninstall-packages", "enable-modules", "disable-modules", "install-modules")
    if any(modifiers.has_texts(key) for key in (*layering, "uninstall-modules")) or options.boolean("no-layering"):
        actions.append("install-uninstall-packages")
    # The code asks for another name here than it reads later: a mismatch of the real daemon.
    if modifiers.handles("install-local-packages") or modifiers.handles("install-local-fileoverride-packages"):
        actions.append("install-local-packages")
    overrides = ("override-replace-packages", "override-remove-packages", "override-reset-packages")
    if (
        any(modifiers.has_texts(key) for key in overrides)
        or modifiers.handles("override-replace-local-packages")
        or options.boolean("no-overrides")
    ):
        actions.append("override")
    return actions or ["override"]


def _has_active_session(uid: int | None) -> bool:
    """Return whether a session of the user is active, from the file that sd_uid_get_state() reads."""
    try:
        return "STATE=active\n" in Path(f"/run/systemd/users/{uid}").read_text()
    except OSError:
        return False
