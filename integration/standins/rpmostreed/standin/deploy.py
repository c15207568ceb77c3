# SPDX-License-Identifier: Apache-2.0
"""The deploy family: Deploy, Upgrade, Rebase, PkgChange, UpdateDeployment and AutomaticUpdateTrigger are one path.

Options are read leniently and have other defaults for each method, conflicts show only in Finished, and success does
not mean that there is a new deployment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from integration.standins.rpmostreed.standin import layering
from integration.standins.rpmostreed.standin.errors import Failed
from integration.standins.rpmostreed.standin.finalize import check_inhibitors
from integration.standins.rpmostreed.standin.gir import GLib
from integration.standins.rpmostreed.standin.options import Options
from integration.standins.rpmostreed.standin.refspec import (
    CHECKSUM,
    Kind,
    classify,
    complete,
    is_pinned_image,
    parse_ostree,
)
from integration.standins.rpmostreed.standin.transaction import Work
from integration.standins.rpmostreed.standin.upgrader import Upgrader

DRIVER_STATE = Path("/run/rpm-ostree/update-driver.gv")


@dataclass(frozen=True, slots=True)
class Deploy:
    """One request. The defaults are those of the method; an option that is given wins."""

    osname: str
    modifiers: Options
    options: Options
    descriptors: int = 0  # how many came with the message
    allow_downgrade: bool = False
    no_pull_base: bool = False
    metadata_only: bool = False

    def __call__(self, work: Work) -> None:
        self._check_conflicts()
        work.set_title(self._title())
        driver = self.options.text("register-driver")
        if driver is not None:
            _record_driver(work, driver)
            if self._revision == "":
                work.output.message("Empty string revision found; registering update driver only")
                return
        upgrader = Upgrader(
            work,
            self.osname,
            # The real code reads set-revision only after this default was computed from it.
            allow_older=self.options.boolean("allow-downgrade", self.allow_downgrade or self._refspec is not None),
            synthetic=self.options.boolean("cache-only"),
            locked=self.options.boolean("lock-finalization"),
            ignore_unconfigured=self._refspec is not None,
        )
        old_refspec = self._change_origin(work, upgrader)
        changed = self._change_packages(work, upgrader)
        if not self._no_pull_base:
            changed |= upgrader.pull_base(metadata_only=self.metadata_only)
            work.output.progress_end()
        changed |= self._remove_from_base(work, upgrader)
        if self.metadata_only:
            return
        changed |= upgrader.layer_changed()
        if self.options.boolean("dry-run"):
            return
        self._finish(work, upgrader, changed=changed, old_refspec=old_refspec)

    # -- what was asked for

    @property
    def _refspec(self) -> str | None:
        return self.modifiers.text("set-refspec")

    @property
    def _revision(self) -> str | None:
        return self.modifiers.text("set-revision")

    @property
    def _no_pull_base(self) -> bool:
        return self.options.boolean("no-pull-base", self.no_pull_base)

    @property
    def _is_upgrade(self) -> bool:
        return not self._no_pull_base and self._refspec is None and self._revision is None

    def _check_conflicts(self) -> None:
        options, modifiers = self.options, self.modifiers
        local = ("install-local-packages", "install-fileoverride-local-packages", "override-replace-local-packages")
        expected = sum(modifiers.handles(key) for key in local) + modifiers.handle("ex-local-repo-remote")
        if expected != self.descriptors:
            raise Failed(f"Expected {expected} fds but received {self.descriptors}")
        if self._refspec is None and options.boolean("skip-purge"):
            raise Failed("Can't specify skip-purge if not setting a new refspec")
        # Again before set-revision is read: a revision alone does not conflict.
        if self._refspec is not None and options.boolean("no-pull-base"):
            raise Failed("Can't specify no-pull-base if setting a new refspec or revision")
        if options.boolean("cache-only") and options.boolean("download-only"):
            raise Failed("Can't specify cache-only and download-only")
        if options.boolean("dry-run") and options.boolean("download-only"):
            raise Failed("Can't specify dry-run and download-only")
        if modifiers.texts("override-replace-packages"):
            raise Failed("Non-local replacement overrides not implemented yet")
        if options.boolean("no-overrides") and self._overrides:
            raise Failed("Can't specify no-overrides if setting override modifiers")
        if options.boolean("apply-live") and options.boolean("reboot"):
            raise Failed("Cannot specify `apply-live` and `reboot`")
        if modifiers.texts("install-fileoverride-packages"):
            raise Failed("Non-local fileoverrides not implemented")
        if expected:
            raise Failed("The stand-in has no RPM and takes no local packages")

    @property
    def _overrides(self) -> bool:
        keys = ("override-remove-packages", "override-reset-packages")
        return any(self.modifiers.texts(key) for key in keys) or bool(
            self.modifiers.handles("override-replace-local-packages")
        )

    def _title(self) -> str:
        given = self.options.text("initiating-command-line")
        if given is not None:
            if "--trigger-automatic-update-policy" in given:
                return "automatic (check)" if self.metadata_only else "automatic (stage)"
            return given
        install = self.modifiers.texts("install-packages")
        uninstall = self.modifiers.texts("uninstall-packages")
        if self._no_pull_base and (self._overrides or self.options.boolean("no-overrides")):
            title = "override"
        elif self._no_pull_base:
            title = "install" if install else "uninstall"
        elif self._refspec is not None:
            title = "rebase"
        else:
            title = "upgrade" if self._revision is None else "deploy"
        if self.options.boolean("cache-only"):
            title += " (cache only)"
        elif self.metadata_only:
            title += " (check only)"
        elif self.options.boolean("download-only"):
            title += " (download only)"
        title += f"; uninstall: {len(uninstall)}" if uninstall else ""
        return title + (f"; install: {len(install)}" if install else "")

    # -- what is done

    def _change_origin(self, work: Work, upgrader: Upgrader) -> str | None:
        """The old refspec where it is given up."""
        origin, old = upgrader.origin, None
        if self._refspec is not None:
            old = origin.refspec
            self._rebase(work, upgrader, self._refspec)
        if self._revision is None:
            origin.override = None
            return old
        match origin.kind:
            case Kind.CHECKSUM:
                raise Failed("Cannot look up version while pinned to commit")
            case Kind.CONTAINER:
                origin.override = self._revision  # no look-up: whatever it is, it is the digest
            case Kind.OSTREE:
                origin.override = self._find_revision(work, upgrader, self._revision)
        work.output.progress_end()
        return old

    def _rebase(self, work: Work, upgrader: Upgrader, given: str) -> None:
        origin, custom = upgrader.origin, self.options.pair("custom-origin")
        if custom is not None and custom[0] and not custom[1]:
            raise Failed("Invalid custom-origin")
        if classify(given) is Kind.CONTAINER:
            if origin.kind is Kind.CONTAINER and origin.refspec == given:
                raise Failed(f"Old and new refs are equal: {given}")
            origin.rebase(given, custom if is_pinned_image(given) else None)
            return
        previous = origin.refspec if origin.kind is not Kind.CONTAINER else None
        new = complete(given, previous)
        if classify(new) is Kind.CHECKSUM:
            origin.rebase(new, custom)
            return
        if origin.refspec == new:
            raise Failed(f"Old and new refs are equal: {new}")
        origin.rebase(new)
        old_remote, old_ref = parse_ostree(previous) if previous else (None, None)
        remote, ref = parse_ostree(new)
        if remote is not None and remote != old_remote and ref == old_ref:
            work.output.message(f"Rebasing to {remote}:{ref}")

    def _find_revision(self, work: Work, upgrader: Upgrader, revision: str) -> str:
        match = re.fullmatch(r"(?i:(revision|version)=)?(.*)", revision)
        assert match is not None
        prefix, value = (match[1] or "").lower(), match[2]
        if prefix == "revision" and CHECKSUM.fullmatch(value) is None:
            raise Failed(f"Parsing revision '{revision}': Invalid checksum of length {len(value)} expected 64")
        if prefix != "version" and CHECKSUM.fullmatch(value):
            if not self.options.boolean("skip-branch-check"):
                work.output.message(f"Validating checksum '{value}'")
                upgrader.check_on_branch(value)
            return value
        work.output.message(f"Resolving version '{value}'")
        return upgrader.find_version(value)

    def _change_packages(self, work: Work, upgrader: Upgrader) -> bool:
        origin, modifiers = upgrader.origin, self.modifiers
        if origin.kind is not Kind.CONTAINER and not self.options.boolean("allow-inactive"):
            there = layering.packages_in(work.repo, upgrader.base)
            for name in modifiers.texts("install-packages"):
                if name in there:
                    raise Failed(
                        f'"{name}" is already provided by: {name}. Use --allow-inactive to explicitly require it.'
                    )
        idempotent = self.options.boolean("idempotent-layering")
        if self.options.boolean("no-layering"):
            changed = origin.remove_all_packages()
        else:
            changed = origin.remove_packages(modifiers.texts("uninstall-packages"), idempotent=idempotent)
        changed |= origin.add_packages(modifiers.texts("install-packages"), idempotent=idempotent)
        if self.options.boolean("no-overrides"):
            changed |= origin.remove_all_overrides()
        elif reset := modifiers.texts("override-reset-packages"):
            origin.reset_removals(reset)
            changed = True
        return changed

    def _remove_from_base(self, work: Work, upgrader: Upgrader) -> bool:
        remove = self.modifiers.texts("override-remove-packages")
        there = layering.packages_in(work.repo, upgrader.base) if remove else set()
        for name in remove:
            if name not in there:
                raise Failed(f'Package "{name}" not found')
        upgrader.origin.add_removals(remove)
        return bool(remove)

    def _finish(self, work: Work, upgrader: Upgrader, *, changed: bool, old_refspec: str | None) -> None:
        if not changed and self._refspec is None:
            if upgrader.origin.kind is Kind.CHECKSUM and not upgrader.origin.packages:
                work.output.message("Pinned to commit; no upgrade available")
            else:
                work.output.message("No upgrade available." if self._is_upgrade else "No change.")
            return
        if self.options.boolean("download-only"):
            work.output.message("Update downloaded." if changed else "No changes.")
            return
        upgrader.deploy()
        if old_refspec is not None and not self.options.boolean("skip-purge"):
            _purge(work, old_refspec)
        if self.options.boolean("apply-live"):
            raise Failed("The stand-in applies nothing live")
        if self.options.boolean("reboot"):
            check_inhibitors(work)  # only now: the deployment is staged already
            work.host.request_reboot()


def _purge(work: Work, refspec: str) -> None:
    """Images go with the pruning of unused ones, a ref goes here."""
    if classify(refspec) is Kind.OSTREE:
        remote, ref = parse_ostree(refspec)
        work.repo.set_ref_immediate(remote, ref, None, None)


def _record_driver(work: Work, name: str) -> None:
    if work.caller_unit is None:
        raise Failed("could not find caller systemd unit")
    DRIVER_STATE.parent.mkdir(parents=True, exist_ok=True)
    state = GLib.Variant(
        "a{sv}",
        {"driver-name": GLib.Variant("s", name), "driver-sd-unit": GLib.Variant("s", work.caller_unit)},
    )
    DRIVER_STATE.write_bytes(state.get_data_as_bytes().get_data())
