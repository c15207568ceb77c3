# SPDX-License-Identifier: Apache-2.0
"""The next request to the daemon on the way to a target. It is a pure function, so a retry requests what is missing.

Rules of the daemon that determine a request (rpm-ostree's ``rpmostreed-transaction-types.cxx``)
- A new deployment is made from the *first* one in boot order, including staged ones: its image, packages and kernel
  arguments. So packages are requested as the difference to that one. A rebase to the refspec that it already has fails,
  even if the checksum differs: then only the revision is set.
- ``UpdateDeployment`` takes image, packages and removed packages in one transaction. Kernel arguments need their own
  transaction, which pulls nothing. It comes second, so that a host without its registry has no staged deployment.
- The default of ``allow-downgrade`` depends on the method and, by mistake, on the order of the modifiers. A target is
  pinned, so its age does not matter: always true.
- A package can be removed only from a base that has it. That is known after the pull, and the refusal names the first
  missing one. Removals that a new base does not need are no error.
- Unknown keys, and known keys with another type, are silently ignored.
- Two requests are equal only if all bytes are; then the second joins the first. So a request is built in the same way
  each time, and a restarted agent finds its own transaction again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from nodeagent.core.config.image import ContainerImage, OsImage, OstreeCommit, content_id
from nodeagent.core.config.kargs import line_of
from nodeagent.core.config.packages import NOT_IN_EACH_IMAGE
from nodeagent.core.plan.deployment import Deployment, OsTarget, merged_arguments, unmet
from nodeagent.host.dbus.codec import a_sv

# The title of each transaction of nodeagent begins with it, which identifies those of an earlier run.
TITLE = "nodeagent"


@dataclass(frozen=True, slots=True)
class Request:
    """A method of the OS interface that returns a transaction. ``doing`` completes the message "cannot ..."."""

    member: str
    signature: str
    body: tuple[Any, ...]
    doing: str


CLEANUP = Request("Cleanup", "as", (["pending-deploy"],), "remove the staged deployment")
ROLLBACK = Request("Rollback", "a{sv}", ({},), "roll back")


def next_request(
    target: OsTarget, booted: Deployment, first: Deployment, absent: Collection[str] = ()
) -> Request | None:
    """Return the next request, or None if ``first`` is the target.

    ``first`` is the booted deployment or an owned staged one. ``absent`` are packages that cannot be removed because
    the image lacks them, or that are optional and do not exist.
    """
    optional = target.optional_packages - frozenset(absent)
    wanted = (booted.packages | target.packages | optional) - target.without_packages
    unwanted = (booted.removed | target.removed) - target.without_removed
    modifiers: dict[str, tuple[str, Any]] = {}
    if target.image is None:
        if (first.digest, first.base) != (booted.digest, booted.base):
            # An earlier target had another image; the booted one is closer.
            return CLEANUP
    elif "osImageURL" in unmet(OsTarget(image=target.image), first):
        modifiers |= _image(target.image, first)
    remove = unwanted - first.removed - frozenset(absent)
    if not modifiers and remove <= NOT_IN_EACH_IMAGE:
        # The removals were requested together with the kernel of this image.
        remove = frozenset()
    lists = {
        "install-packages": wanted - first.packages,
        "uninstall-packages": first.packages - wanted,
        "override-remove-packages": remove,
        "override-reset-packages": first.removed - unwanted,
    }
    modifiers |= {key: ("as", sorted(names)) for key, names in lists.items() if names}
    if modifiers:
        return _update(target, modifiers)
    return _kernel_arguments(first.kernel_arguments, merged_arguments(booted.kernel_arguments, target))


def _image(image: OsImage, first: Deployment) -> dict[str, tuple[str, Any]]:
    refspec, revision = {"set-refspec": ("s", image.refspec)}, {"set-revision": ("s", content_id(image))}
    match image:
        case ContainerImage():
            # Its refspec contains the digest.
            return revision if first.image == image.refspec else refspec
        case OstreeCommit():
            return revision if first.origin == image.refspec else refspec | revision


def _update(target: OsTarget, modifiers: dict[str, tuple[str, Any]]) -> Request:
    pulls = "set-refspec" in modifiers or "set-revision" in modifiers
    options: dict[str, tuple[str, Any]] = {
        "allow-downgrade": ("b", True),
        "lock-finalization": ("b", True),
        "initiating-command-line": ("s", f"{TITLE} stage {_name(target.image)}"),
        # Requesting a package that is layered already, or that the image includes, is no error.
        "idempotent-layering": ("b", True),
        "allow-inactive": ("b", True),
    }
    if not pulls:
        # With a refspec or a revision this is an error.
        options["no-pull-base"] = ("b", True)
    elif isinstance(target.image, OstreeCommit):
        # A checksum is exact. Without this option the daemon first reads the history of the branch on the remote.
        options["skip-branch-check"] = ("b", True)
    doing = f"stage {_name(target.image)}" if pulls else "change the layered packages"
    return Request("UpdateDeployment", "a{sv}a{sv}", (a_sv(modifiers), a_sv(options)), doing)


def _kernel_arguments(existing: Sequence[str], wanted: Sequence[str]) -> Request | None:
    """Return the request for the kernel arguments, or None if they are right.

    ``KernelArgs`` changes the line that is sent along and compares it with nothing, so the line is that of the
    deployment from which the new one is made.
    """
    existing = line_of(existing)
    if existing == tuple(wanted):
        return None
    options: dict[str, tuple[str, Any]] = {
        "lock-finalization": ("b", True),
        "initiating-command-line": ("s", f"{TITLE} kargs"),
    }
    removed = list((Counter(existing) - Counter(wanted)).elements())
    rest = [token for token in existing if token not in removed]
    appended = list(wanted[len(rest) :])
    if [*rest, *appended] == list(wanted) and not set(appended) & set(existing) and len(set(appended)) == len(appended):
        lists = {"append-if-missing": appended, "delete-if-present": removed}
        options |= {key: ("as", tokens) for key, tokens in lists.items() if tokens}
    else:
        # The lists cannot express another order or a repeated token, so the whole line is sent.
        options["final-kernel-args"] = ("s", " ".join(wanted))
    line = " ".join(existing)
    return Request("KernelArgs", "sasasasa{sv}", (line, [], [], [], a_sv(options)), "change the kernel arguments")


def _name(image: OsImage | None) -> str:
    return content_id(image) if image else "packages"
