# SPDX-License-Identifier: Apache-2.0
"""Write an OCI image with one layer of ours as an archive, alone or on the layers of a base image.

The formats are those of the OCI image specification 1.1; a base is what `skopeo copy ... oci-archive:FILE` writes.
The bytes depend on the content and the base only.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from bundle.errors import BuildError

# Go's names for architectures, which the specification uses.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
NAME_KEY = "org.opencontainers.image.ref.name"
LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
# The specification asks registries for 4 MiB at least; larger documents are not of an image.
MAX_JSON = 4 << 20
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
BLOCK = 1 << 20

Json = dict[str, Any]


class Image(NamedTuple):
    """What to write. `tag` is the name inside the archive, `epoch` the time of creation in seconds."""

    layer: bytes  # a tar, compressed by gzip
    machine: str
    labels: Mapping[str, str]
    tag: str
    epoch: int


def write(image: Image, target: Path, base: Path | None = None) -> str:
    """Write `image` to `target` and return its digest. Raises BuildError if `base` is no image for this machine."""
    if base is None:
        return _write(image, _Base({}, {}, None), target)
    try:
        with tarfile.open(base, "r:") as archive:
            return _write(image, _read(archive, base.name, image.machine), target)
    except (tarfile.TarError, KeyError, TypeError, ValueError, OSError) as error:
        raise BuildError(f"{base} is not an OCI archive of one image: {error}") from error


class _Base(NamedTuple):
    """Manifest and config of the base, empty without one, and its archive."""

    manifest: Json
    config: Json
    archive: tarfile.TarFile | None


def _write(image: Image, base: _Base, target: Path) -> str:
    created = datetime.fromtimestamp(image.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    documents: dict[str, bytes] = {}

    def put(data: bytes, kind: str) -> Json:
        digest = hashlib.sha256(data).hexdigest()
        documents[_blob(f"sha256:{digest}")] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    old = base.config
    settings = old.get("config") or {}
    config = {
        **old,
        "architecture": ARCHITECTURES[image.machine],
        "os": "linux",
        "created": created,
        "config": {**settings, "Labels": {**(settings.get("Labels") or {}), **image.labels}},
        "rootfs": {"type": "layers", "diff_ids": [*_diff_ids(old), _digest(gzip.decompress(image.layer))]},
        "history": [*(old.get("history") or []), {"created": created, "created_by": image.tag}],
    }
    layers = base.manifest.get("layers", [])
    manifest = {
        **base.manifest,
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "layers": [*layers, put(image.layer, LAYER)],
        "config": put(_dump(config), CONFIG),
    }
    described = put(_dump(manifest), MANIFEST) | {"annotations": {NAME_KEY: image.tag}}
    documents["index.json"] = _dump({"schemaVersion": 2, "manifests": [described]})
    documents["oci-layout"] = LAYOUT
    kept = {_blob(layer["digest"]): layer for layer in layers}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(documents.keys() | kept.keys() | {"blobs", "blobs/sha256"}):
            info = tarfile.TarInfo(name)
            info.mtime = image.epoch
            if name in documents:
                info.size = len(documents[name])
                archive.addfile(info, io.BytesIO(documents[name]))
            elif name in kept:
                _copy(base, kept[name], info, archive)
            else:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
    return str(described["digest"])


def _read(archive: tarfile.TarFile, name: str, machine: str) -> _Base:
    """Return the one image of an archive."""
    described = json.loads(_content(archive, "index.json"))["manifests"]
    if len(described) != 1:
        raise BuildError(f"{name} has {len(described)} images, not one")
    manifest = json.loads(_checked(archive, described[0]["digest"]))
    if "config" not in manifest or "layers" not in manifest:
        raise BuildError(f"{name} lists images of several architectures; copy the one of {machine}")
    config = json.loads(_checked(archive, manifest["config"]["digest"]))
    wanted = ARCHITECTURES[machine]
    if config.get("architecture") != wanted:
        raise BuildError(f"{name} is an image for {config.get('architecture')}, not for {wanted}")
    if len(_diff_ids(config)) != len(manifest["layers"]):
        raise BuildError(f"{name}: the config does not list the layers of the manifest")
    return _Base(manifest, config, archive)


def _diff_ids(config: Json) -> list[str]:
    return list(config["rootfs"]["diff_ids"]) if config else []


def _copy(base: _Base, layer: Json, info: tarfile.TarInfo, target: tarfile.TarFile) -> None:
    """Copy a layer of the base, which may have gigabytes. Raises BuildError if it is not what its digest says."""
    assert base.archive is not None
    member = base.archive.getmember(info.name)
    source = base.archive.extractfile(member)
    if source is None:
        raise BuildError(f"{info.name} of the base is no file")
    info.size = member.size
    hashing = _Hashing(source)
    target.addfile(info, hashing)
    if f"sha256:{hashing.total.hexdigest()}" != layer["digest"]:
        raise BuildError(f"{info.name} of the base does not have its digest")


class _Hashing(io.RawIOBase):
    """A file that is hashed while it is read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.total = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self.total.update(data)
        return data


def _checked(archive: tarfile.TarFile, digest: str) -> bytes:
    data = _content(archive, _blob(digest))
    if _digest(data) != digest:
        raise BuildError(f"the document {digest} of the base does not have this digest")
    return data


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise BuildError(f"{name} of the base is no file")
    data = file.read(MAX_JSON + 1)
    if len(data) > MAX_JSON:
        raise BuildError(f"{name} of the base is too large for a document")
    return data


def _blob(digest: str) -> str:
    """Return the name of a blob. Raises BuildError for a digest that could lead elsewhere."""
    if not DIGEST.fullmatch(digest):
        raise BuildError(f"the base has the digest {digest!r}, which is not supported")
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _dump(document: Json) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
