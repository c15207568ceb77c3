# SPDX-License-Identifier: Apache-2.0
"""The kernel arguments that an image brings, and the line of a deployment of it, as bootc computes both.

An image has files ``usr/lib/bootc/kargs.d/*.toml``, which are read in the order of their names::

    kargs = ["console=ttyS0", "nosmt"]
    match-architectures = ["x86_64"]

A deployment is made from the line of the booted one, with the difference of both images (``bootc_kargs.rs`` of bootc
1.16, and its crate linux-kernel-cmdline).
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.config.kargs import MAX_LENGTH, line_of, split
from nodeagent.core.config.paths import has_control

KARGS: Final = "usr/lib/bootc/kargs.d"

# Files of one image, and bytes of one file. bootc has no bounds.
MAX_FILES: Final = 100
MAX_BYTES: Final = 64 * 1024

_KARGS: Final = "kargs"
_MATCH: Final = "match-architectures"
# The names of architectures in these files are those of Rust. All others are those of the kernel.
_ARCHITECTURES: Final = {"ppc64le": "powerpc64", "ppc64": "powerpc64", "i686": "x86", "armv7l": "arm"}


class BadKargs(ValueError):
    """The files of an image cannot be used. The message names the file."""


@dataclass(frozen=True, slots=True)
class ImageArguments:
    """The arguments of one image, each once. ``present`` is False for an image without the directory."""

    tokens: tuple[str, ...] = ()
    present: bool = False


def is_read(name: str) -> bool:
    """Return whether a file of this name in ``KARGS`` is read."""
    stem, _, suffix = name.rpartition(".")
    return stem != "" and suffix == "toml"


def image_arguments(files: Mapping[str, bytes], machine: str) -> ImageArguments:
    """Return the arguments in the files of ``KARGS``, by their names, on a ``machine`` (uname -m).

    Raises ``BadKargs``.
    """
    names = sorted(filter(is_read, files))
    if len(names) > MAX_FILES:
        raise BadKargs(f"{KARGS} has more than {MAX_FILES} files")
    tokens: list[str] = []
    for name in names:
        # Those of one file are appended together: an argument that an earlier file has is not repeated.
        _append(tokens, _parse(name, files[name], _ARCHITECTURES.get(machine, machine)))
    # The kernel would cut the line without a word, and with it the arguments of the host.
    if len(" ".join(tokens)) > MAX_LENGTH:
        raise BadKargs(f"{KARGS} has more than {MAX_LENGTH} characters of arguments, which no kernel reads")
    return ImageArguments(tuple(tokens), present=True)


def with_image(line: Sequence[str], old: ImageArguments, new: ImageArguments) -> tuple[str, ...]:
    """Return the arguments of a deployment of the image with ``new`` that is made from one with ``line`` and ``old``.

    ``ostree=`` is left out. The result has all tokens of ``line`` that no image took out, in their order.
    """
    result = list(line_of(line))
    # Not the same as an empty directory. bootc takes nothing out for an image that does not know kargs.d, and appends
    # what the line lacks of the old image.
    if not new.present:
        _append(result, old.tokens)
        return tuple(result)
    # All of them, also those that the host had before an image brought them: nothing records who added an argument.
    removed = {_meaning(token) for token in old.tokens} - {_meaning(token) for token in new.tokens}
    result = [token for token in result if _meaning(token) not in removed]
    # What both images have is left as it is, so that an argument which an admin took out does not return.
    held = {_meaning(token) for token in old.tokens}
    _append(result, [token for token in new.tokens if _meaning(token) not in held])
    return tuple(result)


def _parse(name: str, data: bytes, architecture: str) -> Sequence[str]:
    if len(data) > MAX_BYTES:
        raise BadKargs(f"{KARGS}/{name} has more than {MAX_BYTES} bytes")
    try:
        document = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise BadKargs(f"{KARGS}/{name} is no TOML: {error}") from None
    if unknown := document.keys() - {_KARGS, _MATCH}:
        raise BadKargs(f"{KARGS}/{name} has the unknown key {min(unknown)!r}")
    if _KARGS not in document:
        raise BadKargs(f"{KARGS}/{name} has no {_KARGS}")
    for key, texts in document.items():
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise BadKargs(f"{key} in {KARGS}/{name} is no list of texts")
    if _MATCH in document and architecture not in document[_MATCH]:
        return ()
    # The entries are one line, so an entry may have several arguments, and a quote may last over two of them.
    line = " ".join(document[_KARGS])
    # bootc takes one that is not closed. The kernel would read all that follows in the line as one value.
    if line.count('"') % 2:
        raise BadKargs(f"{KARGS}/{name} has an unpaired double quote")
    tokens = split(line)
    if any(map(has_control, tokens)):
        raise BadKargs(f"{KARGS}/{name} has control characters")
    # libostree writes the one that names the deployment.
    return line_of(tokens)


def _append(tokens: list[str], others: Collection[str]) -> None:
    """Append those that the list does not have."""
    have = set(map(_meaning, tokens))
    for token in others:
        if (meaning := _meaning(token)) not in have:
            have.add(meaning)
            tokens.append(token)


def _meaning(token: str) -> tuple[str, str | None]:
    """Return name and value of an argument for a comparison; None without a value."""
    # Quotes are taken off at the two ends, and before the value, wherever they were opened.
    key, equals, value = token.removeprefix('"').removesuffix('"').partition("=")
    # To the kernel, a dash in a name is an underscore.
    return key.replace("-", "_"), value.removeprefix('"') if equals else None
