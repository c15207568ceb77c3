# SPDX-License-Identifier: Apache-2.0
"""Refspecs: an ostree ref, a bare checksum, or a container image in one of its spellings."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from integration.standins.rpmostreed.standin.errors import Failed, invalid_refspec

CHECKSUM = re.compile(r"[0-9a-f]{64}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SCHEMES = (
    "ostree-image-signed",
    "ostree-unverified-image",
    "ostree-unverified-registry",
    "ostree-remote-registry",
    "ostree-remote-image",
)


class Kind(Enum):
    OSTREE = "ostree"
    CHECKSUM = "checksum"
    CONTAINER = "container"


def classify(refspec: str) -> Kind:
    if refspec.partition(":")[0] in _SCHEMES and ":" in refspec:
        return Kind.CONTAINER
    return Kind.CHECKSUM if CHECKSUM.fullmatch(refspec) else Kind.OSTREE


def parse_ostree(refspec: str) -> tuple[str | None, str]:
    """(remote, ref). Raises the daemon's InvalidRefspec."""
    match = re.fullmatch(r"(?:([\w-][\w.-]*):)?([\w-][\w./-]*)", refspec)
    if match is None:
        raise invalid_refspec(f"Invalid refspec '{refspec}'")
    return match[1], match[2]


def complete(given: str, base: str | None) -> str:
    """Return `given` (`remote:`, `:local`, `ref`), completed from `base`."""
    base_remote, base_ref = parse_ostree(base) if base else (None, None)
    remote: str | None
    ref: str | None
    if given.endswith(":"):
        remote, ref = given[:-1], base_ref
    elif given.startswith(":"):
        return given[1:]
    else:
        remote, ref = parse_ostree(given)
        remote = remote or base_remote
    if ref is None:
        raise invalid_refspec("Could not determine default ref to pull.")
    return f"{remote}:{ref}" if remote else ref


@dataclass(frozen=True, slots=True)
class ImageReference:
    """An image and how its signature is to be judged."""

    signature: str  # "signed", "unverified", or the name of an ostree remote
    transport: str  # "registry", "containers-storage", "oci", ...
    name: str

    def __str__(self) -> str:
        match self.signature, self.transport:
            case "unverified", "registry":
                return f"ostree-unverified-registry:{self.name}"
            case "unverified", _:
                return f"ostree-unverified-image:{self.image}"
            case "signed", _:
                return f"ostree-image-signed:{self.image}"
            case remote, "registry":
                return f"ostree-remote-registry:{remote}:{self.name}"
            case remote, _:
                return f"ostree-remote-image:{remote}:{self.image}"

    @property
    def image(self) -> str:
        """Return the form for skopeo, from which the refs of the repository are made."""
        return f"docker://{self.name}" if self.transport == "registry" else f"{self.transport}:{self.name}"

    @property
    def repository(self) -> str:
        """Return the name without tag and digest."""
        return re.sub(r"(:[\w.-]+)?$", "", self.name.partition("@")[0]) if "/" in self.name else self.name

    @property
    def digest(self) -> str | None:
        return self.name.partition("@")[2] or None

    @property
    def tag(self) -> str:
        """Return the name in errors of skopeo: the digest if there is one."""
        return self.digest or self.name[len(self.repository) :].lstrip(":") or "latest"

    @property
    def registry_host(self) -> str:
        return self.name.partition("/")[0]

    def with_digest(self, digest: str) -> ImageReference:
        return replace(self, name=f"{self.repository}@{digest}")


def parse_image(refspec: str) -> ImageReference:
    """Raises Failed for an unknown spelling."""
    scheme, _, rest = refspec.partition(":")
    match scheme:
        case "ostree-unverified-registry":
            return ImageReference("unverified", "registry", rest)
        case "ostree-remote-registry":
            remote, _, name = rest.partition(":")
            return ImageReference(remote, "registry", name)
        case "ostree-image-signed":
            return ImageReference("signed", *_transport(rest))
        case "ostree-unverified-image":
            return ImageReference("unverified", *_transport(rest))
        case "ostree-remote-image":
            remote, _, image = rest.partition(":")
            return ImageReference(remote, *_transport(image))
        case _:
            raise Failed(f"Invalid ostree image reference scheme: {scheme}")


def is_pinned_image(refspec: str) -> bool:
    return classify(refspec) is Kind.CONTAINER and parse_image(refspec).digest is not None


def _transport(image: str) -> tuple[str, str]:
    transport, colon, name = image.partition(":")
    if not colon:
        raise Failed(f"Missing ':' in {image}")
    if transport in ("registry", "docker"):
        return "registry", name.removeprefix("//")
    if transport in ("oci", "oci-archive", "docker-archive", "containers-storage", "dir"):
        return transport, name
    raise Failed(f"Unknown transport '{transport}'")


def escape_ref(text: str) -> str:
    """An arbitrary string as a part of an ostree ref, in ostree-ext's way: `_3A_` for a colon."""
    result, after_word = "", False
    for index, character in enumerate(text):
        word = character.isascii() and character.isalnum()
        if word or character == "-" or (character == "/" and after_word and index + 1 < len(text)):
            result += character
        elif character == "_":
            result += "__"
        else:
            result += f"_{ord(character):02X}_"
        after_word = word
    return result
