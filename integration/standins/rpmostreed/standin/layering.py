# SPDX-License-Identifier: Apache-2.0
"""Packages: what is faked, honestly. There is no RPM here.

A requested package becomes a file /usr/share/rpmostreed-standin/packages/NAME in a commit of its own on top of the
base, with the metadata of a client-side layer; a removed base package loses its file. What exists in the
"repositories" on the network is what `packages.json` in the registry's folder lists ({"packages": [...]}), or
ON_THIS_HOST; without such a file, all. Local repositories are real, see `rpm_repositories`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from integration.standins.rpmostreed.standin import rpm_repositories
from integration.standins.rpmostreed.standin.errors import Failed, text_of
from integration.standins.rpmostreed.standin.gir import Gio, GLib, OSTree
from integration.standins.rpmostreed.standin.transaction import Work
from integration.standins.rpmostreed.standin.tree import add_files

MARKERS = "usr/share/rpmostreed-standin/packages"
ON_THIS_HOST = Path("/etc/rpmostreed-standin-packages.json")
CLIENT_LAYER_VERSION = 6
SCRIPTS = ("Running pre scripts", "Running systemd-sysusers", "Running post scripts", "Running posttrans scripts")


def base_of(repo: Any, commit: str) -> str:
    """The base of a client-side layer; any other commit is its own."""
    _, variant, _ = repo.load_commit(commit)
    layered = variant.get_child_value(0).lookup_value("rpmostree.clientlayer", GLib.VariantType("b"))
    return str(OSTree.commit_get_parent(variant)) if layered is not None and layered.unpack() else commit


def packages_in(repo: Any, commit: str) -> set[str]:
    """Packages that a commit was built with, by their markers."""
    _, root, _ = repo.read_commit(commit, None)
    folder = root.resolve_relative_path(MARKERS)
    if not folder.query_exists(None):
        return set()
    children = folder.enumerate_children("standard::name", Gio.FileQueryInfoFlags.NONE, None)
    return {str(entry.get_name()) for entry in children}


def state_of(repo: Any, commit: str) -> list[str]:
    """Return the input of a layer, which shows whether it has to be made again."""
    _, variant, _ = repo.load_commit(commit)
    value = variant.get_child_value(0).lookup_value("rpmostreed-standin.state", GLib.VariantType("as"))
    return [] if value is None else [str(item) for item in value.unpack()]


def wanted(work: Work, base: str, packages: list[str], removals: list[str]) -> list[str]:
    """Return the input of a layer on `base`, in the form of state_of(); empty: none is needed.

    Raises Failed for packages that no repository has.
    """
    there = packages_in(work.repo, base)
    active = [name for name in packages if name not in there]
    lists = [ON_THIS_HOST, work.host.settings.registry / "packages.json"]
    known = next((path for path in lists if path.exists()), None)
    if active and known is not None:
        available = set(json.loads(known.read_text())["packages"]) | rpm_repositories.packages()
        missing = [name for name in active if name not in available]
        if missing:
            raise Failed(f"Packages not found: {', '.join(missing)}")
    return [f"+{name}" for name in active] + [f"-{name}" for name in removals if name in there]


def assemble(work: Work, base: str, state: list[str]) -> str:
    """Make the layer's commit."""
    if work.host.lock_layering():
        raise Failed("Cannot operate; `LockLayering=true` in configuration.")
    output, repo = work.output, work.repo
    with output.task(f"Checking out tree {base[:7]}"):
        tree = OSTree.MutableTree.new_from_commit(repo, base)
    added = [name[1:] for name in state if name.startswith("+")]
    if added:
        _import_metadata(work)
    with output.task("Resolving dependencies"):
        work.fault_point("packages")
        work.stop_if_cancelled()
    if added:
        for text in ("Importing packages", "Checking out packages"):
            with output.counted(text, len(added)) as update:
                for done in range(1, len(added) + 1):
                    update(done)
    for text in (*(SCRIPTS if added else ()), "Writing rpmdb"):
        with output.task(text):
            work.stop_if_cancelled()
    repo.prepare_transaction(work.cancellable)
    try:
        add_files(repo, tree, MARKERS, added, work.cancellable)
        for name in (name[1:] for name in state if name.startswith("-")):
            _remove(tree, name)
        with output.task("Writing OSTree commit"):
            commit = _commit(work, tree, base, state, added)
        repo.commit_transaction(work.cancellable)
        work.fault_point("sanity")  # of a layer before it is staged
    except GLib.Error as error:
        repo.abort_transaction(None)
        raise Failed(f"Committing: {text_of(error)}") from None
    return commit


def _import_metadata(work: Work) -> None:
    """Report the progress of the repositories: a percentage without a count, unlike the rest."""
    with work.output.percent("Importing rpm-md") as update:
        for percentage in (5, 100):
            update(percentage)


def _commit(work: Work, tree: Any, base: str, state: list[str], added: list[str]) -> str:
    _, base_commit, _ = work.repo.load_commit(base)
    version = base_commit.get_child_value(0).lookup_value("version", GLib.VariantType("s"))
    metadata = {
        "rpmostree.clientlayer": GLib.Variant("b", True),
        "rpmostree.clientlayer_version": GLib.Variant("u", CLIENT_LAYER_VERSION),
        "rpmostree.packages": GLib.Variant("as", added),
        "rpmostreed-standin.state": GLib.Variant("as", state),
    }
    if version is not None:
        metadata["version"] = version
    _, root = work.repo.write_mtree(tree, work.cancellable)
    _, commit = work.repo.write_commit(base, None, None, GLib.Variant("a{sv}", metadata), root, work.cancellable)
    return str(commit)


def _remove(tree: Any, name: str) -> None:
    directory = tree
    for part in MARKERS.split("/"):
        _, directory = directory.ensure_dir(part)
    directory.remove(name, True)
