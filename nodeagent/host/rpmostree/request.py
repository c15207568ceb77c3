"""The next thing to ask of the daemon on the way to a target: pure, so a retry asks for what is still missing.

Rules of the daemon that decide the form of a request (rpm-ostree's ``rpmostreed-transaction-types.cxx``)
- A new deployment is made from the *first* one in boot order, staged ones included: its image, its packages, its kernel
  arguments. So packages are asked for as the difference to that one, and a rebase to the refspec that it has already
  fails, also where the checksum differs: then only the revision is set.
- ``UpdateDeployment`` takes image, packages and removed packages in one transaction. Kernel arguments need one of
  their own, which pulls nothing; it comes second, so that a host without its registry has nothing staged.
- The default of ``allow-downgrade`` depends on the method and, by mistake, on the order in which modifiers are read. A
  target is pinned, so the age of what it names is nobody's business: always true.
- A package can be removed only from a base that has it; which ones that has is known after the pull, and then the
  refusal names the first that is missing. A removal of before that a new base has no use for is no error.
- Unknown keys, and known ones with another type, are ignored in silence.
- Two requests are the same one only if they are equal byte by byte; the second then joins the first. So a request is
  made the same way each time, and an agent that was killed finds its own transaction again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from nodeagent.core.config.image import ContainerImage, OsImage, OstreeCommit, content_id
from nodeagent.core.config.kargs import merged
from nodeagent.core.config.packages import NOT_IN_EACH_IMAGE
from nodeagent.core.plan.deployment import Deployment, OsTarget, unmet
from nodeagent.host.dbus.codec import a_sv

__all__ = ["CLEANUP", "ROLLBACK", "TITLE", "Request", "next_request", "redeploy_command"]

TITLE = "nodeagent"
"""How the title of each of our transactions begins; by it we know one that an earlier life of ours started."""


@dataclass(frozen=True, slots=True)
class Request:
    """A method of the OS interface that returns a transaction. ``doing`` completes "cannot ..."."""

    member: str
    signature: str
    body: tuple[Any, ...]
    doing: str


CLEANUP = Request("Cleanup", "as", (["pending-deploy"],), "remove what is staged")
ROLLBACK = Request("Rollback", "a{sv}", ({},), "roll back")


def next_request(
    target: OsTarget, booted: Deployment, first: Deployment, absent: Collection[str] = ()
) -> Request | None:
    """None if ``first`` is what was asked for. ``first`` is the booted deployment or a staged one of ours; ``absent``
    are packages that the image was found not to have, and so cannot be removed from it."""
    shall_have = (booted.packages | target.packages) - target.without_packages
    shall_lack = (booted.removed | target.removed) - target.without_removed
    modifiers: dict[str, tuple[str, Any]] = {}
    if target.image is None:
        if (first.digest, first.base) != (booted.digest, booted.base):
            return CLEANUP  # a former target of ours had another image; from the booted one it is a short way
    elif "osImageURL" in unmet(OsTarget(image=target.image), first):
        modifiers |= _image(target.image, first)
    remove = shall_lack - first.removed - frozenset(absent)
    if not modifiers and remove <= NOT_IN_EACH_IMAGE:
        remove = frozenset()  # of this image they were asked for when the kernel was
    lists = {
        "install-packages": shall_have - first.packages,
        "uninstall-packages": first.packages - shall_have,
        "override-remove-packages": remove,
        "override-reset-packages": first.removed - shall_lack,
    }
    modifiers |= {key: ("as", sorted(names)) for key, names in lists.items() if names}
    if modifiers:
        return _update(target, modifiers)
    return _kernel_arguments(
        first.kernel_arguments,
        merged(booted.kernel_arguments, target.kernel_arguments, target.without_kernel_arguments),
    )


def _image(image: OsImage, first: Deployment) -> dict[str, tuple[str, Any]]:
    refspec, revision = {"set-refspec": ("s", image.refspec)}, {"set-revision": ("s", content_id(image))}
    match image:
        case ContainerImage():  # its refspec is pinned by itself
            return revision if first.image == image.refspec else refspec
        case OstreeCommit():
            return revision if first.origin == image.refspec else refspec | revision


def _update(target: OsTarget, modifiers: dict[str, tuple[str, Any]]) -> Request:
    pulls = "set-refspec" in modifiers or "set-revision" in modifiers
    options: dict[str, tuple[str, Any]] = {
        "allow-downgrade": ("b", True),
        "lock-finalization": ("b", True),
        "initiating-command-line": ("s", f"{TITLE} stage {_name(target.image)}"),
        # Asking again for a package that is layered, or that the image has by itself, is no error.
        "idempotent-layering": ("b", True),
        "allow-inactive": ("b", True),
    }
    if not pulls:
        options["no-pull-base"] = ("b", True)  # with a refspec or a revision this is an error
    elif isinstance(target.image, OstreeCommit):
        # A checksum is exact. Without this the daemon first walks the history of the branch on the remote.
        options["skip-branch-check"] = ("b", True)
    doing = f"stage {_name(target.image)}" if pulls else "change the layered packages"
    return Request("UpdateDeployment", "a{sv}a{sv}", (a_sv(modifiers), a_sv(options)), doing)


def _kernel_arguments(existing: Sequence[str], wanted: Sequence[str]) -> Request | None:
    """``KernelArgs`` patches the line that is sent along and compares with nothing else, so what is sent is the line of
    the deployment that the new one is made from."""
    existing = merged(existing, (), ())
    if existing == tuple(wanted):
        return None
    options: dict[str, tuple[str, Any]] = {
        "lock-finalization": ("b", True),
        "initiating-command-line": ("s", f"{TITLE} kargs"),
    }
    removed = list((Counter(existing) - Counter(wanted)).elements())
    kept = [token for token in existing if token not in removed]
    appended = list(wanted[len(kept) :])
    if [*kept, *appended] == list(wanted) and not set(appended) & set(existing) and len(set(appended)) == len(appended):
        lists = {"append-if-missing": appended, "delete-if-present": removed}
        options |= {key: ("as", tokens) for key, tokens in lists.items() if tokens}
    else:
        # Another order, or one token twice: the lists cannot say that, so the whole line is given.
        options["final-kernel-args"] = ("s", " ".join(wanted))
    line = " ".join(existing)
    return Request("KernelArgs", "sasasasa{sv}", (line, [], [], [], a_sv(options)), "change the kernel arguments")


def _name(image: OsImage | None) -> str:
    return content_id(image) if image else "packages"


def redeploy_command(old: Deployment) -> tuple[str, ...]:
    """Makes a new deployment, first in boot order, of the tree that ``old`` has. libostree merges /etc of the booted
    deployment into it."""
    # systemd expands variables in the arguments of a command.
    tokens = [token.replace("$", "$$") for token in merged(old.kernel_arguments, (), ())]
    origin = f"/ostree/deploy/{old.osname}/deploy/{old.id.removeprefix(f'{old.osname}-')}.origin"
    command = ("/usr/bin/ostree", "admin", "deploy", f"--os={old.osname}", f"--origin-file={origin}", "--karg-none")
    return (*command, *(f"--karg-append={token}" for token in tokens), old.checksum)
