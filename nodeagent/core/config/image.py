# SPDX-License-Identifier: Apache-2.0
"""Parse ``osImageURL``: a container image pinned by digest, or a commit in an ostree remote.

A tag or a branch alone is rejected: its content changes, so the booted deployment could not be verified against it. The
forms of container refspecs are those of ostree-ext (``ostree-unverified-registry:`` and so on); a reference without one
is read as in a config of the machine-config-operator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodeagent.errors import InvalidInput
from nodeagent.reasons import Reason

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_CHECKSUM = re.compile(r"[0-9a-f]{64}")
# The grammar of containers' references (github.com/distribution/reference): host and port, path, tag.
_HOST = r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?)(:[0-9]+)?"
_PART = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(rf"({_HOST}/)?{_PART}(/{_PART})*(:[A-Za-z0-9_][-A-Za-z0-9._]{{0,127}})?")
_REMOTE = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9._]*")
_BRANCH = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9._]*(/[A-Za-z0-9_][-A-Za-z0-9._]*)*")

UNVERIFIED = "ostree-unverified-registry:"
_TRANSPORTS = ("ostree-unverified-image:docker://", "ostree-image-signed:docker://", UNVERIFIED, "docker://")
_REMOTES = ("ostree-remote-registry:", "ostree-remote-image:")


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """``scheme`` is the part of the refspec before the reference; ``name`` is the reference without tag and digest."""

    scheme: str
    name: str
    digest: str

    @property
    def refspec(self) -> str:
        """The refspec that rpm-ostree accepts."""
        return f"{self.scheme}{self.name}@{self.digest}"


@dataclass(frozen=True, slots=True)
class OstreeCommit:
    """A commit of a branch of a remote that is configured on the host."""

    remote: str
    branch: str
    checksum: str

    @property
    def refspec(self) -> str:
        return f"{self.remote}:{self.branch}"


OsImage = ContainerImage | OstreeCommit


def content_id(image: OsImage) -> str:
    """Return the digest or checksum, which identifies the content independently of its source."""
    match image:
        case ContainerImage():
            return image.digest
        case OstreeCommit():
            return image.checksum


def parse_image(text: str) -> OsImage:
    """Parse an ``osImageURL``.

    Raises ``InvalidInput``, with reason ``ImageNotPinned`` if only the digest is missing.
    """
    if text.startswith("ostree://"):
        return _commit(text)
    scheme, rest = _split_scheme(text)
    name, at, digest = rest.partition("@")
    if not _REFERENCE.fullmatch(name):
        raise InvalidInput(f"osImageURL: {text!r} is not an image reference", reason=Reason.IMAGE_INVALID)
    if not at:
        raise _not_pinned(text, "@sha256:...")
    if not _DIGEST.fullmatch(digest):
        raise InvalidInput(f"osImageURL: {digest!r} is not a sha256 digest", reason=Reason.IMAGE_INVALID)
    # rpm-ostree accepts no reference without a transport. The machine-config-daemon rebases to this one as well: the
    # digest already fixes the content.
    return ContainerImage(UNVERIFIED if scheme in ("", "docker://") else scheme, _without_tag(name), digest)


def is_pinned(text: str) -> bool:
    """Return whether an ``osImageURL`` names fixed content."""
    try:
        parse_image(text)
    except InvalidInput:
        return False
    return True


def _split_scheme(text: str) -> tuple[str, str]:
    for scheme in _TRANSPORTS:
        if text.startswith(scheme):
            return scheme, text[len(scheme) :]
    for scheme in _REMOTES:
        if text.startswith(scheme):
            remote, colon, rest = text[len(scheme) :].partition(":")
            # ostree-remote-image takes any transport after its remote, ostree-remote-registry only registries. One
            # image must have one refspec, or a booted deployment would differ from its config.
            docker = "docker://" if scheme == "ostree-remote-image:" else ""
            if colon and _REMOTE.fullmatch(remote):
                return f"{scheme}{remote}:{docker}", rest.removeprefix(docker)
    if "://" in text or text.startswith("ostree-"):
        raise InvalidInput(
            f"osImageURL: {text!r} has an unknown form",
            reason=Reason.IMAGE_INVALID,
            hint="REFERENCE@sha256:..., ostree-image-signed:docker://REFERENCE@sha256:... or ostree://REMOTE/BRANCH@...",
        )
    return "", text


def _without_tag(name: str) -> str:
    # containers/image refuses a reference with both a tag and a digest. A colon before the last slash is that of a
    # port.
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def _commit(text: str) -> OstreeCommit:
    remote, _, rest = text.removeprefix("ostree://").partition("/")
    branch, at, checksum = rest.partition("@")
    if not (_REMOTE.fullmatch(remote) and _BRANCH.fullmatch(branch)):
        raise InvalidInput(f"osImageURL: {text!r} is not ostree://REMOTE/BRANCH@CHECKSUM", reason=Reason.IMAGE_INVALID)
    if not at:
        raise _not_pinned(text, "@CHECKSUM")
    if not _CHECKSUM.fullmatch(checksum):
        raise InvalidInput(f"osImageURL: {checksum!r} is not the checksum of a commit", reason=Reason.IMAGE_INVALID)
    return OstreeCommit(remote, branch, checksum)


def _not_pinned(text: str, form: str) -> InvalidInput:
    return InvalidInput(
        f"osImageURL: {text!r} names no fixed content",
        reason=Reason.IMAGE_NOT_PINNED,
        hint=f"append {form}: the content of a tag or a branch changes and cannot be verified",
    )


def image_to_text(image: OsImage) -> str:
    """Return the text for which ``parse_image`` returns ``image``."""
    match image:
        case ContainerImage():
            return image.refspec
        case OstreeCommit(remote, branch, checksum):
            return f"ostree://{remote}/{branch}@{checksum}"
