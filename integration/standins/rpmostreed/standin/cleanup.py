# SPDX-License-Identifier: Apache-2.0
"""The end of every change of deployments: refs are made again, unused images dropped, and the repo pruned."""

from __future__ import annotations

import os
from typing import Any

from integration.standins.rpmostreed.standin.container_image import IMAGE_REFS, LAYER_REFS
from integration.standins.rpmostreed.standin.errors import Failed
from integration.standins.rpmostreed.standin.gir import GLib, OSTree
from integration.standins.rpmostreed.standin.layering import base_of
from integration.standins.rpmostreed.standin.origin import CONTAINER_KEY, Origin
from integration.standins.rpmostreed.standin.refspec import escape_ref, parse_image
from integration.standins.rpmostreed.standin.registry_folder import layers_of_manifest
from integration.standins.rpmostreed.standin.transaction import Work

BASE_REFS = "rpmostree/base"


def syscore_cleanup(work: Work) -> None:
    """Raises Failed or GLib.Error."""
    work.fault_point("cleanup")
    work.sysroot.prepare_cleanup(work.cancellable)
    _write_base_refs(work)
    images, layers = _drop_images(work)
    if images or layers:
        work.output.message(f"Pruned images: {images} (layers: {layers})")
    *_, freed = work.repo.prune(OSTree.RepoPruneFlags.REFS_ONLY, 0, work.cancellable)
    if freed:
        work.output.message(f"Freed: {GLib.format_size(freed)} (pkgcache branches: 0)")


def bump_mtime(work: Work) -> None:
    """Notify all watchers of /ostree/deploy of a change."""
    os.utime(f"{work.host.settings.sysroot.rstrip('/')}/ostree/deploy")


def without(work: Work, osname: str, *, pending: bool, rollback: bool) -> list[Any] | None:
    """The deployments that stay; None where all do. The booted one, pinned ones and those of another OS always stay."""
    booted = work.sysroot.get_booted_deployment()
    deployments = work.sysroot.get_deployments()
    kept, past_booted = [], False
    for deployment in deployments:
        if booted is not None and deployment.equal(booted):
            past_booted = True
        elif (
            deployment.get_osname() == osname
            and not deployment.is_pinned()
            and ((pending and not past_booted) or (rollback and past_booted))
        ):
            continue
        kept.append(deployment)
    return kept if len(kept) < len(deployments) else None


def cleanup(work: Work, osname: str, elements: list[str]) -> None:
    """The method Cleanup, in its worker."""
    base = "base" in elements
    if "pending-deploy" in elements or "rollback-deploy" in elements:
        kept = without(work, osname, pending="pending-deploy" in elements, rollback="rollback-deploy" in elements)
        if kept is None:
            work.output.message("Deployments unchanged.")
        else:
            options = OSTree.SysrootWriteDeploymentsOpts()
            options.do_postclean = False
            work.sysroot.write_deployments_with_options(kept, options, work.cancellable)
            base = True
    if base:
        syscore_cleanup(work)


def rollback(work: Work, osname: str, *, reboot: bool, before_reboot: Any) -> None:
    """The method Rollback, in its worker. `before_reboot` raises where a reboot must not be."""
    pending, earlier = work.sysroot.query_deployments_for(osname)
    if earlier is None and pending is None:
        raise Failed("No rollback deployment found")
    if pending is not None and pending.is_staged():
        raise Failed("Staged deployment (remove with cleanup -p)")
    # With only a pending one, rolling back means to stay on what is booted.
    first = earlier if earlier is not None else work.sysroot.get_booted_deployment()
    work.output.message(f"Moving '{first.get_csum()}.{first.get_deployserial()}' to be first deployment")
    deployments = work.sysroot.get_deployments()
    ordered = [first, *(one for one in deployments if not one.equal(first))]
    if not deployments[0].equal(first):
        work.sysroot.write_deployments(ordered, work.cancellable)
    if reboot:
        before_reboot()
        work.host.request_reboot()


def _write_base_refs(work: Work) -> None:
    repo = work.repo
    wanted = []
    for deployment in work.sysroot.get_deployments():
        base = base_of(repo, deployment.get_csum())
        if base != deployment.get_csum() and base not in wanted:
            wanted.append(base)
    repo.prepare_transaction(work.cancellable)
    for name in _refs(repo, BASE_REFS):
        repo.transaction_set_ref(None, name, None)
    for index, commit in enumerate(wanted):
        repo.transaction_set_ref(None, f"{BASE_REFS}/{index}", commit)
    repo.commit_transaction(work.cancellable)


def _drop_images(work: Work) -> tuple[int, int]:
    """Images whose reference no deployment has as its origin, then layers that no image needs."""
    repo = work.repo
    keep: set[str] = set()
    for deployment in work.sysroot.get_deployments():
        origin = Origin(deployment)
        if (refspec := origin.text("origin", CONTAINER_KEY)) is not None:
            reference = parse_image(refspec)
            if origin.override is not None:
                reference = reference.with_digest(origin.override)
            keep.add(f"{IMAGE_REFS}/{escape_ref(reference.image)}")
    images = [name for name in _refs(repo, IMAGE_REFS) if name not in keep]
    needed = {
        f"{LAYER_REFS}/{escape_ref(digest)}"
        for name, commit in _refs(repo, IMAGE_REFS).items()
        if name in keep
        for digest in _layer_digests(repo, commit)
    }
    layers = [name for name in _refs(repo, LAYER_REFS) if name not in needed]
    for name in (*images, *layers):
        repo.set_ref_immediate(None, name, None, None)
    return len(images), len(layers)


def _refs(repo: Any, prefix: str) -> dict[str, str]:
    _, refs = repo.list_refs_ext(prefix, OSTree.RepoListRefsExtFlags.NONE, None)
    return {str(name): str(commit) for name, commit in refs.items()}


def _layer_digests(repo: Any, commit: str) -> list[str]:
    _, variant, _ = repo.load_commit(commit)
    manifest = variant.get_child_value(0).lookup_value("ostree.manifest", GLib.VariantType("s"))
    return layers_of_manifest(str(manifest.unpack())) if manifest is not None else []
