# SPDX-License-Identifier: Apache-2.0
"""Pulling a container image: layer by layer, each a repo transaction, a commit and so a syncfs of its own."""

from __future__ import annotations

import json
from typing import Any

from integration.standins.rpmostreed.standin.errors import Failed, text_of
from integration.standins.rpmostreed.standin.fault_injection import NetworkTrouble
from integration.standins.rpmostreed.standin.gir import GLib, OSTree
from integration.standins.rpmostreed.standin.refspec import ImageReference, escape_ref
from integration.standins.rpmostreed.standin.registry_folder import Image, Layer, Registry, blob_error, network_error
from integration.standins.rpmostreed.standin.transaction import Work
from integration.standins.rpmostreed.standin.tree import merge_tree

LAYER_REFS = "ostree/container/blob"
IMAGE_REFS = "ostree/container/image"
DIGEST_KEY = "ostree.manifest-digest"


def pull(work: Work, reference: ImageReference) -> str:
    """The merge commit of the image, fetched unless the same digest is here under this name."""
    work.output.message(f"Pulling manifest: {reference}")
    present = _present(work.repo, reference)
    if present is not None and present[1] == reference.digest:
        return present[0]
    registry = Registry(work.host.settings.registry, work.profile)
    try:
        work.fault_point("pull")
    except NetworkTrouble as trouble:
        raise Failed(work.profile.importer_prefix + network_error(str(trouble), reference)) from None
    work.stop_if_cancelled()
    image = registry.open(reference)
    if present is not None and present[1] == image.digest:
        return present[0]
    work.output.message(f"Importing: {reference} (digest: {image.digest})")
    _import_layers(work, reference, registry, image)
    work.fault_point("merge")
    work.stop_if_cancelled()
    return _merge(work, reference, image)


def newer_available(work: Work, reference: ImageReference) -> bool:
    """Return whether the registry has another image than this host; fetches the manifest only."""
    present = _present(work.repo, reference)
    try:
        work.fault_point("pull")
    except NetworkTrouble as trouble:
        raise Failed(work.profile.importer_prefix + network_error(str(trouble), reference)) from None
    image = Registry(work.host.settings.registry, work.profile).open(reference)
    return present is None or present[1] != image.digest


def image_of(repo: Any, commit: str) -> tuple[str, str] | None:
    """(manifest digest, version) of a merge commit; None for a commit that is none."""
    _, variant, _ = repo.load_commit(commit)
    metadata = variant.get_child_value(0)
    digest = metadata.lookup_value(DIGEST_KEY, GLib.VariantType("s"))
    if digest is None:
        return None
    config = metadata.lookup_value("ostree.container.image-config", GLib.VariantType("s"))
    labels = _labels(str(config.unpack())) if config is not None else {}
    return str(digest.unpack()), labels.get("org.opencontainers.image.version", "")


def _labels(config: str) -> dict[str, str]:
    return dict(json.loads(config).get("config", {}).get("Labels") or {})


def _present(repo: Any, reference: ImageReference) -> tuple[str, str] | None:
    """(merge commit, digest) of what was pulled under this very name."""
    _, commit = repo.resolve_rev(f"{IMAGE_REFS}/{escape_ref(reference.image)}", True)
    if not commit:
        return None
    found = image_of(repo, commit)
    return None if found is None else (str(commit), found[0])


def _import_layers(work: Work, reference: ImageReference, registry: Registry, image: Image) -> None:
    missing = [layer for layer in image.layers if not work.repo.resolve_rev(_layer_ref(layer), True)[1]]
    _announce(work, image, missing)
    for index, layer in enumerate(missing, start=1):
        if work.profile.layers == "messages":
            work.output.message(f"Fetching {_describe(work, layer)} ({GLib.format_size(layer.size)})")
            _import(work, reference, registry, layer, index)
            work.output.message(f"Fetched {_describe(work, layer)}")
            continue
        count = f"[{index}/{len(missing)}] " if work.profile.layers == "counted tasks" else ""
        with work.output.task(f"{count}Fetching {_describe(work, layer)} ({GLib.format_size(layer.size)})"):
            _import(work, reference, registry, layer, index)


def _announce(work: Work, image: Image, missing: list[Layer]) -> None:
    for custom, kind in ((False, "ostree chunk layers"), (True, "custom layers")):
        needed = [layer for layer in missing if layer.custom is custom]
        stored = sum(layer.custom is custom for layer in image.layers) - len(needed)
        size = GLib.format_size(sum(layer.size for layer in needed))
        if work.profile.layers == "messages":
            work.output.message(f"{kind} stored: {stored} needed: {len(needed)} ({size})")
            continue
        if stored:
            work.output.message(f"{kind} already present: {stored}")
        if needed:
            work.output.message(f"{kind} needed: {len(needed)} ({size})")


def _import(work: Work, reference: ImageReference, registry: Registry, layer: Layer, index: int) -> None:
    try:
        work.fault_point(f"layer:{index}")
    except NetworkTrouble as trouble:
        raise Failed(blob_error(trouble, reference, layer, work.profile)) from None
    work.stop_if_cancelled()
    options = GLib.Variant(
        "a{sv}",
        {"refs": GLib.Variant("as", [layer.commit]), "inherit-transaction": GLib.Variant("b", True)},
    )
    work.repo.prepare_transaction(work.cancellable)
    try:
        work.fault_point(f"inside:{index}")
        work.repo.pull_with_options(registry.repo_url, options, None, work.cancellable)
        work.repo.transaction_set_ref(None, _layer_ref(layer), layer.commit)
        work.repo.commit_transaction(work.cancellable)
    except GLib.Error as error:
        work.repo.abort_transaction(None)
        # The real import is dropped as a whole when it is cancelled: no context stands before these words.
        work.stop_if_cancelled()
        where = f"Importing: Unencapsulating base: Layer {layer.digest}: Importing objects: "
        raise Failed(where + text_of(error)) from None


def _merge(work: Work, reference: ImageReference, image: Image) -> str:
    repo = work.repo
    base = [layer.commit for layer in image.layers if not layer.custom][-1]
    overlays = [layer.commit for layer in image.layers if layer.custom]
    # No "version": that of an image is a label of its config alone.
    metadata = GLib.Variant(
        "a{sv}",
        {
            DIGEST_KEY: GLib.Variant("s", image.digest),
            "ostree.manifest": GLib.Variant("s", image.manifest),
            "ostree.container.image-config": GLib.Variant("s", image.config),
        },
    )
    _, base_commit, _ = repo.load_commit(base)
    repo.prepare_transaction(work.cancellable)
    try:
        _, root = repo.write_mtree(merge_tree(repo, base, overlays), work.cancellable)
        time = OSTree.commit_get_timestamp(base_commit)
        _, commit = repo.write_commit_with_time(None, None, None, metadata, root, time, work.cancellable)
        repo.transaction_set_ref(None, f"{IMAGE_REFS}/{escape_ref(reference.image)}", commit)
        repo.commit_transaction(work.cancellable)
    except GLib.Error as error:
        repo.abort_transaction(None)
        work.stop_if_cancelled()
        raise Failed(f"Importing: {text_of(error)}") from None
    return str(commit)


def _layer_ref(layer: Layer) -> str:
    return f"{LAYER_REFS}/{escape_ref(layer.digest)}"


def _describe(work: Work, layer: Layer) -> str:
    hexadecimal = layer.digest.partition(":")[2]
    short = hexadecimal[:19] if work.profile.year >= 2026 else f"sha256:{hexadecimal[:12]}"
    return f"{'layer' if layer.custom else 'ostree chunk'} {short}"
