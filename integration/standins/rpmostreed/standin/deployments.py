# SPDX-License-Identifier: Apache-2.0
"""Deployments as dictionaries of D-Bus. Keys that do not apply are left out; an absent deployment is an empty one."""

from __future__ import annotations

import os
from typing import Any

from integration.standins.rpmostreed.standin import container_image, layering
from integration.standins.rpmostreed.standin.errors import StandInError, daemon_failed
from integration.standins.rpmostreed.standin.gir import GLib, OSTree
from integration.standins.rpmostreed.standin.log import log
from integration.standins.rpmostreed.standin.origin import Origin
from integration.standins.rpmostreed.standin.refspec import Kind, parse_ostree
from integration.standins.rpmostreed.standin.staging import LEGACY_LOCK

# Promoted to keys of their own, or too big.
_LEFT_OUT_OF_META = {"rpmostree.rpmdb.pkglist", "rpmostree.advisories", "rpmostree.packages"}


def identifier(deployment: Any) -> str:
    return f"{deployment.get_osname()}-{deployment.get_csum()}.{deployment.get_deployserial()}"


def describe(sysroot: Any, repo: Any, deployment: Any) -> Any:
    """The a{sv} of one deployment. Raises GLib.Error or Failed."""
    checksum = deployment.get_csum()
    base = layering.base_of(repo, checksum)
    _, commit, _ = repo.load_commit(checksum)
    _, base_commit, _ = repo.load_commit(base)
    origin = Origin(deployment)
    booted = sysroot.get_booted_deployment()
    entries: dict[str, Any] = {
        "id": GLib.Variant("s", identifier(deployment)),
        "osname": GLib.Variant("s", deployment.get_osname()),
        "checksum": GLib.Variant("s", checksum),
        "serial": GLib.Variant("i", deployment.get_deployserial()),
        "booted": GLib.Variant("b", booted is not None and booted.equal(deployment)),
        "staged": GLib.Variant("b", deployment.is_staged()),
        "pinned": GLib.Variant("b", deployment.is_pinned()),
        "unlocked": GLib.Variant("s", OSTree.Deployment.unlocked_state_to_string(deployment.get_unlocked())),
        "requested-packages": GLib.Variant("as", origin.packages),
        "requested-local-packages": GLib.Variant("as", []),
        "requested-local-fileoverride-packages": GLib.Variant("as", []),
        "requested-base-removals": GLib.Variant("as", origin.removals),
        "requested-base-local-replacements": GLib.Variant("as", []),
        "regenerate-initramfs": GLib.Variant("b", False),
        "base-commit-meta": _metadata(base_commit),
        "packages": GLib.Variant("as", _texts(commit, "rpmostree.packages")),
        "base-removals": GLib.Variant("av", []),
        "base-local-replacements": GLib.Variant("a(vv)", []),
        "base-remote-replacements": GLib.Variant("a{sv}", {}),
        **_commit_details("", commit),
    }
    # All releases look at the file only; those with the lock inside the staged state therefore never show it.
    if deployment.is_staged() and LEGACY_LOCK.exists():
        entries["finalization-locked"] = GLib.Variant("b", True)
    if base != checksum:
        entries["base-checksum"] = GLib.Variant("s", base)
        entries["layered-commit-meta"] = _metadata(commit)
        entries |= _commit_details("base-", base_commit)
    custom = origin.text("origin", "custom-url")
    if custom:
        entries["custom-origin"] = GLib.Variant("(ss)", (custom, origin.text("origin", "custom-description") or ""))
    entries |= _source(repo, origin, base)
    return GLib.Variant("a{sv}", entries)


def by_index(deployments: list[Any], index: str) -> Any:
    """Raises rpmostreed.Error.Failed, one of the few users of that name."""
    if not index.isdecimal():
        raise daemon_failed(f"Invalid deployment index {index}, must be a number and >= 0")
    if int(index) >= len(deployments):
        raise daemon_failed(f"Out of range deployment index {int(index)}, expected < {len(deployments)}")
    return deployments[int(index)]


def boot_config(deployment: Any) -> Any:
    """The a{sv} of GetDeploymentBootConfig: of a staged one only the options are known.

    The real daemon asserts that each key is there, so it aborts for one that was staged without kernel arguments, and
    for an entry without an initrd. So does this.
    """
    staged = deployment.is_staged()
    parser = deployment.get_bootconfig()
    keys = ("options",) if staged else ("title", "linux", "initrd", "options", "version")
    entries = {"staged": GLib.Variant("b", staged)}
    for key in keys:
        value = parser.get(key)
        if value is None:
            log("rpm-ostreed:ERROR:rpmostreed-os.cxx:os_handle_get_deployment_boot_config: assertion failed: (value)")
            os.abort()
        entries[key] = GLib.Variant("s", value)
    return GLib.Variant("a{sv}", entries)


def _source(repo: Any, origin: Origin, base: str) -> dict[str, Any]:
    refspec = GLib.Variant("s", origin.refspec)
    match origin.kind:
        case Kind.CONTAINER:
            entries = {"container-image-reference": refspec}
            image = container_image.image_of(repo, base)
            if image is None:
                log(f"failed to query container image base metadata of {base}")
                return entries
            digest, version = image
            entries["container-image-reference-digest"] = GLib.Variant("s", digest)
            if version:
                entries["version"] = GLib.Variant("s", version)
            return entries
        case Kind.CHECKSUM:
            return {"origin": refspec}
        case Kind.OSTREE:
            return {"origin": refspec, **_remote(repo, origin), **_pending_base(repo, origin, base)}


def _remote(repo: Any, origin: Origin) -> dict[str, Any]:
    try:
        remote, _ = parse_ostree(origin.refspec)
    except StandInError:
        return {}
    if remote is None:
        return {"gpg-enabled": GLib.Variant("b", False)}
    try:
        _, enabled = repo.remote_get_gpg_verify(remote)
    except GLib.Error as error:
        return {"remote-error": GLib.Variant("s", error.message)}
    return {"gpg-enabled": GLib.Variant("b", enabled)}


def _pending_base(repo: Any, origin: Origin, base: str) -> dict[str, Any]:
    _, pending = repo.resolve_rev(origin.refspec, True)
    if not pending or pending == base:
        return {}
    _, commit, _ = repo.load_commit(pending)
    return {"pending-base-checksum": GLib.Variant("s", pending), **_commit_details("pending-base-", commit)}


def _commit_details(prefix: str, commit: Any) -> dict[str, Any]:
    entries = {}
    version = commit.get_child_value(0).lookup_value("version", GLib.VariantType("s"))
    if version is not None:
        entries[f"{prefix}version"] = version
    timestamp = OSTree.commit_get_timestamp(commit)
    if timestamp > 0:
        entries[f"{prefix}timestamp"] = GLib.Variant("t", timestamp)
    return entries


def _metadata(commit: Any) -> Any:
    metadata = commit.get_child_value(0)
    entries = {}
    for index in range(metadata.n_children()):
        entry = metadata.get_child_value(index)
        key = entry.get_child_value(0).get_string()
        if key not in _LEFT_OUT_OF_META:
            entries[key] = entry.get_child_value(1).get_variant()
    return GLib.Variant("a{sv}", entries)


def _texts(commit: Any, key: str) -> list[str]:
    value = commit.get_child_value(0).lookup_value(key, GLib.VariantType("as"))
    return [] if value is None else [str(item) for item in value.unpack()]
