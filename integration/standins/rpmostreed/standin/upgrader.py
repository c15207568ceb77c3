# SPDX-License-Identifier: Apache-2.0
"""One change of the system: from an origin to a base, perhaps a layer on it, and a deployment that is staged."""

from __future__ import annotations

from typing import Any

from integration.standins.rpmostreed.standin import checks, container_image, kargs, layering, staging
from integration.standins.rpmostreed.standin.cleanup import syscore_cleanup
from integration.standins.rpmostreed.standin.errors import Failed, text_of
from integration.standins.rpmostreed.standin.gir import GLib, OSTree
from integration.standins.rpmostreed.standin.origin import Origin
from integration.standins.rpmostreed.standin.refspec import CHECKSUM, Kind, parse_image, parse_ostree
from integration.standins.rpmostreed.standin.transaction import Work


class Upgrader:
    """The origin comes from the first deployment of the OS, so a staged one counts; /etc comes from the booted one."""

    def __init__(
        self,
        work: Work,
        osname: str,
        *,
        allow_older: bool = False,
        synthetic: bool = False,
        locked: bool = False,
        ignore_unconfigured: bool = False,
    ) -> None:
        self._work = work
        self._osname = osname
        self._allow_older = allow_older
        self._synthetic = synthetic
        self._locked = locked
        deployments = work.sysroot.get_deployments()
        first = next((one for one in deployments if one.get_osname() == osname), None)
        self._etc_source = work.sysroot.get_merge_deployment(osname)
        if first is None or self._etc_source is None:
            raise Failed(f"No previous deployment for OS '{osname}'")
        self.merge = first
        self.origin = Origin(self.merge)
        unconfigured = self.origin.text("origin", "unconfigured-state")
        if unconfigured is not None and not ignore_unconfigured:
            raise Failed(f"origin unconfigured-state: {unconfigured}")
        self.base = layering.base_of(work.repo, self.merge.get_csum())
        self.kernel_arguments: list[str] | None = None  # None: those of the first deployment

    def pull_base(self, *, metadata_only: bool = False) -> bool:
        """Return whether the base is another one now."""
        match self.origin.kind:
            case Kind.CONTAINER:
                reference = parse_image(self.origin.refspec)
                if metadata_only:
                    return container_image.newer_available(self._work, reference)
                if self.origin.override is not None:
                    reference = reference.with_digest(self.origin.override)
                new = container_image.pull(self._work, reference)
            case _:
                new = self._pull_ostree(metadata_only=metadata_only)
        if new == self.base:
            return False
        if not self._allow_older:
            self._check_timestamps(new)
        self.base = new
        return True

    def deploy(self) -> Any:
        """Stage it (or write it, on a system that is not booted into ostree), and clean up behind it."""
        work = self._work
        state = layering.wanted(work, self.base, self.origin.packages, self.origin.removals)
        target = layering.assemble(work, self.base, state) if state else self.base
        work.stop_if_cancelled()
        words = self.kernel_arguments
        if words is None:
            words = kargs.split(self.merge.get_bootconfig().get("options") or "")
        with work.output.task("Staging deployment"):
            work.fault_point("stage")
            deployment = staging.stage(
                work, self._osname, target, self.origin.finished(), self._etc_source, words, locked=self._locked
            )
        # What fails from here on leaves the deployment staged, as it does in the real daemon.
        work.fault_point("staged")
        work.fault_point("history")
        checks.write_history(work, deployment)
        if target == self.base:
            checks.sanity_check(work, deployment)
        syscore_cleanup(work)
        return deployment

    def layer_changed(self) -> bool:
        """Return whether the requested packages make another layer than the deployed one."""
        work = self._work
        wanted = layering.wanted(work, self.base, self.origin.packages, self.origin.removals)
        return bool(wanted) and wanted != layering.state_of(work.repo, self.merge.get_csum())

    def find_version(self, version: str) -> str:
        """The commit in the history of the origin's ref that has this version; fetches commits, no content."""
        for checksum, commit in self._history():
            found = commit.get_child_value(0).lookup_value("version", GLib.VariantType("s"))
            if found is not None and found.unpack() == version:
                return checksum
        raise Failed(f"Version {version} not found in {self.origin.refspec}")

    def check_on_branch(self, checksum: str) -> None:
        if all(checksum != known for known, _ in self._history()):
            raise Failed(f"Checksum {checksum} not found in {self.origin.refspec}")

    def _history(self) -> list[tuple[str, Any]]:
        work = self._work
        remote, ref = parse_ostree(self.origin.refspec)
        if remote is not None:
            flags = OSTree.RepoPullFlags.COMMIT_ONLY
            self._pull(remote, {"refs": ("as", [ref]), "flags": ("i", int(flags)), "depth": ("i", -1)})
        checksum = work.repo.resolve_rev(self.origin.refspec, False)[1]
        history = []
        while checksum is not None:
            commit = work.repo.load_variant_if_exists(OSTree.ObjectType.COMMIT, checksum)[1]
            if commit is None:
                break
            history.append((str(checksum), commit))
            checksum = OSTree.commit_get_parent(commit)
        return history

    def _pull_ostree(self, *, metadata_only: bool) -> str:
        work, override = self._work, self.origin.override
        remote, ref = parse_ostree(self.origin.refspec)
        if remote is not None and not self._synthetic and CHECKSUM.fullmatch(ref) is None:
            options: dict[str, tuple[str, Any]] = {
                "refs": ("as", [ref]),
                "flags": ("i", int(OSTree.RepoPullFlags.COMMIT_ONLY) if metadata_only else 0),
            }
            if not self._allow_older:
                options["timestamp-check"] = ("b", True)
                if override is not None:
                    work.repo.set_ref_immediate(remote, ref, self.base, None)
            if override is not None:
                options["override-commit-ids"] = ("as", [override])
            try:
                work.fault_point("pull")
                self._pull(remote, options)
            except GLib.Error as error:
                raise Failed(f"While pulling {override or ref}: {text_of(error)}") from None
        return override or str(work.repo.resolve_rev(self.origin.refspec, False)[1])

    def _pull(self, remote: str, options: dict[str, tuple[str, Any]]) -> None:
        progress = OSTree.AsyncProgress.new()
        progress.connect("changed", self._work.output.download)
        body = GLib.Variant("a{sv}", {key: GLib.Variant(*value) for key, value in options.items()})
        self._work.repo.pull_with_options(remote, body, progress, self._work.cancellable)
        progress.finish()

    def _check_timestamps(self, new: str) -> None:
        try:
            OSTree.SysrootUpgrader.check_timestamps(self._work.repo, self.base, new)
        except GLib.Error as error:
            raise Failed(f"While checking against deployment timestamp: {text_of(error)}") from None
