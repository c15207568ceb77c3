#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A stand-in of bootc over the host's libostree: what it does to deployments, as the README says. It is one program.

    bootc status [--json] | upgrade [...] | switch IMAGE | rollback
    bootc loader-entries set-options-for-source --source NAME [--options TEXT]

`fail-cleanup` in STATE makes `switch` fail after it has staged, as bootc does without podman.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import gi

gi.require_version("OSTree", "1.0")
from gi.repository import GLib, OSTree  # noqa: E402

STATE = Path("/run/bootc-standin")
REBOOT_REQUIRED = Path("/run/reboot-required")
IMAGE_KEY = "container-image-reference"
MANIFEST_DIGEST = "ostree.manifest-digest"
IMAGE_CONFIG = "ostree.container.image-config"
UNVERIFIED = "ostree-unverified-registry:"
LAYERED = ("packages", "rpmostree")  # groups of an origin file that only rpm-ostree writes


class Failed(Exception):
    """The text goes to standard error; the exit status is 1."""


class Host:
    """The deployments as they are while the sysroot is locked."""

    def __init__(self) -> None:
        self.sysroot = OSTree.Sysroot.new_default()
        self.sysroot.set_mount_namespace_in_use()
        self.sysroot.load(None)
        # bootc waits for the lock for each command, `status` as well.
        self.sysroot.lock()
        self.sysroot.load(None)
        self.deployments = self.sysroot.get_deployments()
        self.booted = self.sysroot.get_booted_deployment()
        self.staged = self.sysroot.get_staged_deployment()
        others = [each for each in self.deployments if not each.equal(self.booted)]
        self.rollback = next((each for each in others if not each.is_staged()), None)

    def unlock(self) -> None:
        """Let `ostree admin` have the sysroot."""
        self.sysroot.unlock()

    @property
    def rollback_queued(self) -> bool:
        in_order = [each for each in self.deployments if not each.is_staged()]
        return self.booted is not None and not in_order[0].equal(self.booted)

    def index(self, deployment: Any) -> int:
        return next(i for i, each in enumerate(self.deployments) if each.equal(deployment))

    def image(self, deployment: Any) -> str:
        """The reference without its transport, "" for a deployment of no image."""
        origin = deployment.get_origin()
        try:
            return str(origin.get_string("origin", IMAGE_KEY)).removeprefix(UNVERIFIED)
        except GLib.Error:
            return ""

    def incompatible(self, deployment: Any) -> bool:
        return any(deployment.get_origin().has_group(group) for group in LAYERED)

    def locked(self, deployment: Any) -> bool:
        return bool(deployment.is_finalization_locked())

    def entry(self, deployment: Any | None) -> dict[str, Any] | None:
        if deployment is None:
            return None
        incompatible = self.incompatible(deployment)
        return {
            "cachedUpdate": None,
            "composefs": None,
            "downloadOnly": self.locked(deployment),
            "image": None if incompatible else self._image_status(deployment),
            "incompatible": incompatible,
            "ostree": {
                "checksum": deployment.get_csum(),
                "deploySerial": deployment.get_deployserial(),
                "stateroot": deployment.get_osname(),
            },
            "pinned": bool(deployment.is_pinned()),
            "softRebootCapable": deployment.get_bootcsum() == self.booted.get_bootcsum()
            and _arguments(deployment) == _arguments(self.booted),
            "store": None if incompatible else "ostreeContainer",
        }

    def _image_status(self, deployment: Any) -> dict[str, Any] | None:
        if not (image := self.image(deployment)):
            return None
        metadata = self.sysroot.repo().load_commit(deployment.get_csum())[1].get_child_value(0)
        values = {key: metadata.lookup_value(key, GLib.VariantType.new("s")) for key in (MANIFEST_DIGEST, IMAGE_CONFIG)}
        config = json.loads(values[IMAGE_CONFIG].get_string())
        return {
            "architecture": config["architecture"],
            "image": _spec(image),
            "imageDigest": values[MANIFEST_DIGEST].get_string(),
            "timestamp": config["created"],
            "version": config["config"]["Labels"].get("org.opencontainers.image.version"),
        }


def status(_: argparse.Namespace) -> None:
    host = Host()
    newest = host.staged or host.booted
    image = "" if host.incompatible(newest) else host.image(newest)
    print(
        json.dumps(
            {
                "apiVersion": "org.containers.bootc/v1",
                "kind": "BootcHost",
                "metadata": {"name": "host"},
                "spec": {
                    "bootOrder": "rollback" if host.rollback_queued else "default",
                    "image": _spec(image) if image else None,
                },
                "status": {
                    "booted": host.entry(host.booted),
                    "readOnly": False,
                    "rollback": host.entry(host.rollback),
                    "rollbackQueued": host.rollback_queued,
                    "staged": host.entry(host.staged),
                    "type": "bootcHost" if host.image(host.booted) else None,
                    "usrOverlay": None,
                },
            },
            separators=(",", ":"),
        )
    )


def upgrade(options: argparse.Namespace) -> None:
    """Every image here is one by digest, so there is nothing to pull."""
    host = Host()
    if host.incompatible(host.booted):
        raise Failed("Deployment contains local rpm-ostree modifications; cannot upgrade via bootc")
    if options.check or host.staged is None:
        print("No update available.")
    elif host.locked(host.staged) and not options.download_only:
        host.unlock()
        _ostree("lock-finalization", "--unlock")
        print("Staged deployment will now be applied on reboot")
    else:
        print("Staged update present, not changed")


def switch(options: argparse.Namespace) -> None:
    host = Host()
    if options.image == host.image(host.staged or host.booted):
        # Also after a failure of the cleanup, which this does not repeat.
        print("Image specification is unchanged.")
        return
    host.unlock()
    reference = UNVERIFIED + options.image
    _run("ostree", "container", "image", "pull", "--quiet", "/ostree/repo", reference)
    with tempfile.NamedTemporaryFile("w", dir="/run") as origin:
        origin.write(f"[origin]\n{IMAGE_KEY}={reference}\n")
        origin.flush()
        _ostree("deploy", "--stage", f"--origin-file={origin.name}", _commit_of(reference))
    if (STATE / "fail-cleanup").exists():
        raise Failed("Switching: Pruning images: Listing images: podman: No such file or directory (os error 2)")
    _require_reboot(reference)
    print(f"Queued for next boot: {reference}")


def rollback(_: argparse.Namespace) -> None:
    host = Host()
    if host.rollback is None:
        raise Failed("No rollback available")
    following = host.booted if host.rollback_queued else host.rollback
    index, image = host.index(following) - (host.staged is not None), host.image(following)
    host.unlock()
    if host.staged is not None:
        _ostree("undeploy", "0")
    _ostree("set-default", str(index))
    _require_reboot(image)
    print("Next boot: current deployment" if following is host.booted else "Next boot: rollback deployment")


def loader_entries(options: argparse.Namespace) -> None:
    """Stage the same commit again, with the arguments. A lock is lost."""
    host = Host()
    merged = host.staged or host.booted
    checksum, arguments, image = merged.get_csum(), _arguments(merged).split(), host.image(merged)
    with tempfile.NamedTemporaryFile("w", dir="/run") as origin:
        origin.write(merged.get_origin().to_data()[0])
        origin.flush()
        host.unlock()
        wanted = [*(each for each in arguments if not each.startswith("ostree=")), *options.options.split()]
        _ostree(
            *("deploy", "--stage", "--karg-none", f"--origin-file={origin.name}"),
            *(f"--karg-append={argument}" for argument in wanted),
            checksum,
        )
    _require_reboot(image)


def _arguments(deployment: Any) -> str:
    return str(deployment.get_bootconfig().get("options") or "")


def _spec(image: str) -> dict[str, str]:
    return {"image": image, "transport": "registry"}


def _commit_of(reference: str) -> str:
    """The commit of an image in the repository."""
    repo = OSTree.Repo.new_default()
    repo.open(None)
    digest = reference.rpartition("@")[2]
    for commit in repo.list_refs("ostree/container/image", None)[1].values():
        metadata = repo.load_commit(commit)[1].get_child_value(0)
        found = metadata.lookup_value(MANIFEST_DIGEST, GLib.VariantType.new("s"))
        if found is not None and found.get_string() == digest:
            return str(commit)
    raise Failed(f"no commit of {reference}")


def _require_reboot(image: str) -> None:
    REBOOT_REQUIRED.write_text(f"bootc: Reboot required for image: {image.rpartition('@')[2]}")


def _write_to_sysroot() -> None:
    """Remount /sysroot for this process and its children."""
    # The host's Python has it since 3.12.
    os.unshare(os.CLONE_NEWNS)  # type: ignore[attr-defined]
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-o", "remount,rw", "/sysroot")


def _ostree(*arguments: str) -> None:
    _run("ostree", "admin", *arguments)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(done.stderr.strip().removeprefix("error: "))
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser("bootc")
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("status")
    verb.add_argument("--json", action="store_true")
    verb.add_argument("--format")
    verb.add_argument("--format-version")
    verb.set_defaults(run=status)
    verb = verbs.add_parser("upgrade")
    for flag in ("--check", "--download-only", "--from-downloaded", "--quiet"):
        verb.add_argument(flag, action="store_true")
    verb.set_defaults(run=upgrade)
    verb = verbs.add_parser("switch")
    verb.add_argument("image")
    verb.set_defaults(run=switch)
    verbs.add_parser("rollback").set_defaults(run=rollback)
    verb = verbs.add_parser("loader-entries").add_subparsers(required=True).add_parser("set-options-for-source")
    verb.add_argument("--source", required=True)
    verb.add_argument("--options", default="")
    verb.set_defaults(run=loader_entries)
    options = parser.parse_args()
    try:
        if os.getuid():
            raise Failed("This command must be executed as the root user")
        _write_to_sysroot()
        options.run(options)
    except (Failed, GLib.Error) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
