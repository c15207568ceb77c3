# SPDX-License-Identifier: Apache-2.0
"""Fetch an extensions image and unpack the packages in it. For nodeagent-extensions.service, outside of the daemon.

The image is that of ``baseOSExtensionsContainerImage``: one directory of packages with the metadata of a repository, at
``PACKAGES`` (openshift/os, ``extensions/Dockerfile``). skopeo pulls it, as it does for rpm-ostree, so that the policy
for signatures and the mirrors of the host apply. The service has its own limits of the I/O fence, its own user and
directory, and none of the rights of the daemon. It gets a ``FetchRequest`` in JSON and the pull secret as credentials
of systemd, and leaves the text of an error in a file of its directory, because an exit status cannot carry a reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.core.config.text import plain_json

# The directory of the packages in the image.
PACKAGES: Final = "usr/share/rpm-ostree/extensions"

# Credentials of the service, and the file in its directory with the text of an error.
REQUEST: Final = "request.json"
AUTH: Final = "auth.json"
ERROR: Final = "error"

# The images of RHCOS have 0.5 GB in some hundred packages.
MAX_BYTES: Final = 8 << 30
MAX_ENTRIES: Final = 100_000
_MAX_MANIFEST: Final = 4 << 20
# Bytes of the output of skopeo.
_MAX_ERROR: Final = 4096
_CHUNK: Final = 1 << 20
_SKOPEO: Final = "/usr/bin/skopeo"
# Names in a layer that remove an entry, or all entries, of the layers below (OCI image specification, layer.md).
_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"
_PREFIX: Final = tuple(PACKAGES.split("/"))


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """``image`` is a reference with a digest, ``target`` the name of a new directory."""

    image: str
    target: str

    def to_json(self) -> bytes:
        return json.dumps({"image": self.image, "target": self.target}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> FetchRequest:
        """Raises ``ValueError`` for other data."""
        data = plain_json.loads(text)
        if not isinstance(data, dict) or not all(isinstance(data.get(key), str) for key in ("image", "target")):
            raise ValueError("not a request")
        if not data["target"].isalnum():
            raise ValueError("the target is no name")
        return cls(data["image"], data["target"])


def main(credentials: Path, state: Path) -> int:
    """Do what the request says. The exit status is 0, or 1 with the reason in the file ``error``.

    ``credentials`` has the files ``REQUEST`` and ``AUTH``, ``state`` gets the packages.
    """
    error_file = state / ERROR
    error_file.unlink(missing_ok=True)
    try:
        request = FetchRequest.from_json((credentials / REQUEST).read_bytes())
        fetch(request.image, credentials / AUTH, state / request.target)
    except (OSError, ValueError, subprocess.SubprocessError, tarfile.TarError) as error:
        error_file.write_text(str(error), encoding="utf-8")
        return 1
    return 0


def fetch(image: str, auth: Path, target: Path, skopeo: str = _SKOPEO) -> None:
    """Pull the image and leave the content of ``PACKAGES`` in the target, complete or not at all.

    Raises ``OSError``, ``ValueError``, ``SubprocessError`` or ``TarError`` with a message for the admin.
    """
    layers, unpacked = target.with_name(f"{target.name}.image"), target.with_name(f"{target.name}.part")
    for left in (layers, unpacked):
        shutil.rmtree(left, ignore_errors=True)
    unpacked.mkdir(parents=True, mode=0o700)
    try:
        _pull(image, auth, layers, skopeo)
        _unpack(layers, unpacked)
        if not (unpacked / "repodata/repomd.xml").is_file():
            raise ValueError(f"the image has no repository of packages at /{PACKAGES}")
        unpacked.rename(target)
    finally:
        shutil.rmtree(layers, ignore_errors=True)
        shutil.rmtree(unpacked, ignore_errors=True)


def _pull(image: str, auth: Path, layers: Path, skopeo: str) -> None:
    # The layers are decompressed by skopeo, which knows all of the formats that registries use.
    command = (skopeo, "copy", "--quiet", "--retry-times", "3", "--dest-decompress", "--authfile", str(auth))
    try:
        done = subprocess.run(
            [*command, f"docker://{image}", f"dir:{layers}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise ValueError(f"skopeo is not installed ({skopeo})") from None
    if done.returncode:
        raise ValueError(done.stderr[-_MAX_ERROR:].decode("utf-8", "replace").strip() or "skopeo gave no reason")


def _unpack(layers: Path, into: Path) -> None:
    left = _Budget()
    for layer in _layers(layers):
        with tarfile.open(layer, mode="r:") as archive:
            members = [(names, member) for member in archive if left.take(member) and (names := _names(member))]
            # A layer removes only what the layers below it have, wherever the entry for that is.
            for names, _member in members:
                if names[-1].startswith(_WHITEOUT):
                    _remove(names, into)
            for names, member in members:
                if names[: len(_PREFIX)] == _PREFIX and not names[-1].startswith(_WHITEOUT):
                    _add(archive, member, into.joinpath(*names[len(_PREFIX) :]))


def _names(member: tarfile.TarInfo) -> tuple[str, ...]:
    """Return the parts of a name; none for a name that leaves the image."""
    names = tuple(name for name in member.name.split("/") if name not in ("", "."))
    return () if ".." in names else names


def _layers(directory: Path) -> Iterator[Path]:
    """The layers of an image in skopeo's ``dir:`` format, lowest first."""
    with (directory / "manifest.json").open("rb") as file:
        manifest = plain_json.loads(file.read(_MAX_MANIFEST))
    try:
        digests = [str(layer["digest"]) for layer in manifest["layers"]]
    except (KeyError, TypeError):
        raise ValueError("the manifest of the image has no list of layers") from None
    for digest in digests:
        name = digest.partition(":")[2]
        if not name.isalnum():
            raise ValueError("the manifest of the image has a layer with a malformed digest")
        yield directory / name


class _Budget:
    """Bounds what a wrong image may cost."""

    def __init__(self) -> None:
        self._bytes = MAX_BYTES
        self._entries = MAX_ENTRIES

    def take(self, member: tarfile.TarInfo) -> bool:
        """Count ``member`` and return True. Raises ``ValueError`` if there is too much."""
        self._entries -= 1
        self._bytes -= member.size
        if self._entries < 0 or self._bytes < 0:
            raise ValueError(f"the image has more than {MAX_ENTRIES} files or {MAX_BYTES} bytes")
        return True


def _remove(names: tuple[str, ...], into: Path) -> None:
    """Apply a whiteout, the content of its directory or one entry."""
    *parents, last = names
    gone = tuple(parents) if last == _OPAQUE else (*parents, last.removeprefix(_WHITEOUT))
    if gone == _PREFIX[: len(gone)]:
        path = into
    elif gone[: len(_PREFIX)] == _PREFIX:
        path = into.joinpath(*gone[len(_PREFIX) :])
    else:
        return
    if path.is_dir():
        shutil.rmtree(path)
        into.mkdir(exist_ok=True, mode=0o700)
    else:
        path.unlink(missing_ok=True)


def _add(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Write a directory or a file. Links are rejected, so that no path leads out of the target."""
    source = archive.extractfile(member) if member.isreg() else None
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
        return
    if source is None:
        raise ValueError(f"/{member.name} in the image is neither a file nor a directory")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    # A lower layer may have a file of this name.
    path.unlink(missing_ok=True)
    with source, path.open("xb") as file:
        shutil.copyfileobj(source, file, _CHUNK)
        # One file at a time, so that the pull never leaves much for one large sync, which would delay other writers.
        file.flush()
        os.fsync(file.fileno())
