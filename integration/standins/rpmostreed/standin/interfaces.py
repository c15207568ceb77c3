# SPDX-License-Identifier: Apache-2.0
"""The D-Bus interfaces: signatures as introspected from rpm-ostree 2026.2, written as data and turned into XML once."""

from __future__ import annotations

from functools import cache
from typing import Any

from integration.standins.rpmostreed.standin.gir import Gio

NAME = "org.projectatomic.rpmostree1"
BASE_PATH = "/org/projectatomic/rpmostree1"
SYSROOT_PATH = f"{BASE_PATH}/Sysroot"
SYSROOT = f"{NAME}.Sysroot"
OS = f"{NAME}.OS"
OS_EXPERIMENTAL = f"{NAME}.OSExperimental"
TRANSACTION = f"{NAME}.Transaction"
OBJECT_MANAGER = "org.freedesktop.DBus.ObjectManager"

# method: (arguments, results), each a list of complete types
_Methods = dict[str, tuple[list[str], list[str]]]

_METHODS: dict[str, _Methods] = {
    SYSROOT: {
        "RegisterClient": (["a{sv}"], []),
        "UnregisterClient": (["a{sv}"], []),
        "Reload": ([], []),
        "ReloadConfig": ([], []),
        "GetOS": (["s"], ["o"]),
    },
    OS: {
        "AutomaticUpdateTrigger": (["a{sv}"], ["b", "s"]),
        "GetDeploymentsRpmDiff": (["s", "s"], ["a(sua{sv})"]),
        "Deploy": (["s", "a{sv}"], ["s"]),
        "GetCachedDeployRpmDiff": (["s", "as"], ["a(sua{sv})", "a{sv}"]),
        "DownloadDeployRpmDiff": (["s", "as"], ["s"]),
        "Upgrade": (["a{sv}"], ["s"]),
        "GetCachedUpdateRpmDiff": (["s"], ["a(sua{sv})", "a{sv}"]),
        "DownloadUpdateRpmDiff": ([], ["s"]),
        "Rollback": (["a{sv}"], ["s"]),
        "ClearRollbackTarget": (["a{sv}"], ["s"]),
        "Rebase": (["a{sv}", "s", "as"], ["s"]),
        "GetCachedRebaseRpmDiff": (["s", "as"], ["a(sua{sv})", "a{sv}"]),
        "DownloadRebaseRpmDiff": (["s", "as"], ["s"]),
        "PkgChange": (["a{sv}", "as", "as"], ["s"]),
        "SetInitramfsState": (["b", "as", "a{sv}"], ["s"]),
        "InitramfsEtc": (["as", "as", "b", "b", "a{sv}"], ["s"]),
        "KernelArgs": (["s", "as", "as", "as", "a{sv}"], ["s"]),
        "GetDeploymentBootConfig": (["s", "b"], ["a{sv}"]),
        "Cleanup": (["as"], ["s"]),
        "RefreshMd": (["a{sv}"], ["s"]),
        "ModifyYumRepo": (["s", "a{ss}"], ["s"]),
        "ListRepos": ([], ["aa{sv}"]),
        "UpdateDeployment": (["a{sv}", "a{sv}"], ["s"]),
        "FinalizeDeployment": (["a{sv}"], ["s"]),
        "WhatProvides": (["as"], ["aa{sv}"]),
        "GetPackages": (["as"], ["aa{sv}"]),
        "Search": (["as"], ["aa{sv}"]),
    },
    OS_EXPERIMENTAL: {
        "Moo": (["b"], ["s"]),
        "LiveFs": (["a{sv}"], ["s"]),
        "DownloadPackages": (["as", "s"], []),
    },
    TRANSACTION: {"Cancel": ([], []), "Start": ([], ["b"])},
    OBJECT_MANAGER: {"GetManagedObjects": ([], ["a{oa{sa{sv}}}"])},
}
_PROPERTIES = {
    SYSROOT: {
        "Booted": "o",
        "Path": "s",
        "ActiveTransaction": "(sss)",
        "ActiveTransactionPath": "s",
        "AutomaticUpdatePolicy": "s",
        "Deployments": "aa{sv}",
    },
    OS: {
        "BootedDeployment": "a{sv}",
        "DefaultDeployment": "a{sv}",
        "RollbackDeployment": "a{sv}",
        "CachedUpdate": "a{sv}",
        "HasCachedUpdateRpmDiff": "b",
        "Name": "s",
    },
    TRANSACTION: {"Title": "s", "InitiatingClientDescription": "s"},
}
_SIGNALS = {
    TRANSACTION: {
        "Finished": ["b", "s"],
        "Message": ["s"],
        "TaskBegin": ["s"],
        "TaskEnd": ["s"],
        "PercentProgress": ["s", "u"],
        "DownloadProgress": ["(tt)", "(uu)", "(uuu)", "(uuut)", "(uu)", "(tt)"],
        "SignatureProgress": ["av", "s"],
        "ProgressEnd": [],
    },
    OBJECT_MANAGER: {"InterfacesAdded": ["o", "a{sa{sv}}"], "InterfacesRemoved": ["o", "as"]},
}


def signature(interface: str, method: str) -> str:
    """Type of the reply's body, a tuple."""
    return f"({''.join(_METHODS[interface][method][1])})"


def signal_signature(interface: str, name: str) -> str:
    return f"({''.join(_SIGNALS[interface][name])})"


@cache
def info(interface: str) -> Any:
    """The Gio.DBusInterfaceInfo that GDBus checks calls against and introspects."""
    parts = [f'<node><interface name="{interface}">']
    for method, (arguments, results) in _METHODS.get(interface, {}).items():
        parts.append(f'<method name="{method}">')
        parts += [f'<arg type="{kind}" direction="in"/>' for kind in arguments]
        parts += [f'<arg type="{kind}" direction="out"/>' for kind in results]
        parts.append("</method>")
    parts += [
        f'<property name="{name}" type="{kind}" access="read"/>'
        for name, kind in _PROPERTIES.get(interface, {}).items()
    ]
    for name, kinds in _SIGNALS.get(interface, {}).items():
        arguments_xml = "".join(f'<arg type="{kind}"/>' for kind in kinds)
        parts.append(f'<signal name="{name}">{arguments_xml}</signal>')
    parts.append("</interface></node>")
    return Gio.DBusNodeInfo.new_for_xml("".join(parts)).lookup_interface(interface)
