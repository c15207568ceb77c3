# SPDX-License-Identifier: Apache-2.0
"""Images of containers, each of one static program, packed without a registry.

An image is an OCI archive, which `ctr images import` reads: one uncompressed layer, config, manifest, and an index with
the name of the image. The archives are cached by the content of the programs.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from integration.cluster.toolchain import ARCHITECTURES
from integration.hosts.container.image import Layer, digest, layer
from integration.hosts.sources import code

OCI: Final = "application/vnd.oci.image"


def archives(programs: Mapping[str, Path]) -> Layer:
    """A directory of the cache with an archive for each image of `programs`, which maps names to static programs."""
    contents = [name.encode() + hashlib.sha256(path.read_bytes()).digest() for name, path in sorted(programs.items())]

    def build(directory: Path) -> None:
        directory.mkdir()
        for name, path in programs.items():
            file = directory / f"{name.rpartition('/')[2].replace(':', '-')}.tar"
            file.write_bytes(pack(name, f"/{path.name}", path.read_bytes()))

    return layer("containerimages", digest(code(__file__), *contents), build)


def pack(name: str, path: str, program: bytes) -> bytes:
    """The archive of an image whose only file and entry point is `program` at `path`."""
    files = _tar({path.lstrip("/"): program}, mode=0o755)
    blobs: dict[str, bytes] = {}

    def blob(kind: str, data: bytes) -> dict[str, Any]:
        checksum = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{checksum}"] = data
        return {"mediaType": f"{OCI}.{kind}", "digest": f"sha256:{checksum}", "size": len(data)}

    files_blob = blob("layer.v1.tar", files)
    system = {"architecture": ARCHITECTURES[platform.machine()], "os": "linux"}
    config = blob(
        "config.v1+json",
        _json(
            {
                **system,
                "config": {"Entrypoint": [path]},
                "rootfs": {"type": "layers", "diff_ids": [files_blob["digest"]]},
            }
        ),
    )
    manifest = blob(
        "manifest.v1+json",
        _json({"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": config, "layers": [files_blob]}),
    )
    named = {**manifest, "platform": system, "annotations": {"io.containerd.image.name": name}}
    index = {"schemaVersion": 2, "manifests": [named]}
    return _tar({"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index), **blobs})


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()


def _tar(files: Mapping[str, bytes], mode: int = 0o644) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()
