# SPDX-License-Identifier: Apache-2.0
"""Real packages and an image with them, laid out as the extensions image of RHCOS: one directory with its repodata.

The packages are made by rpmbuild and createrepo_c of Debian, in a cached layer of the base image.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.hosts.container.image import Image, base_image, derived_image
from integration.hosts.requirements import Say
from integration.hosts.sources import code
from integration.trees.base import install
from integration.trees.toolbox import toolbox

TOOLS = ("rpm", "createrepo-c")
DIRECTORY = "usr/share/rpm-ostree/extensions"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
SPEC = """\
Name: {name}
Version: 1.0
Release: 1
Summary: A package of the tests
License: MIT
BuildArch: noarch

%description
{name}

%install
mkdir -p %{{buildroot}}/usr/share/{name}
echo {name} >%{{buildroot}}/usr/share/{name}/content

%files
/usr/share/{name}/content
"""


@dataclass(frozen=True, slots=True)
class OciImage:
    """An image as a registry has it: the manifest, and blobs by digest."""

    manifest: bytes
    blobs: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        return _digest(self.manifest)


def tools(say: Say) -> Image:
    """The image with the programs that make packages, cached. Raises Unavailable where none can be made."""

    def change(root: Path) -> None:
        say(f"installing {' and '.join(TOOLS)}, once")
        install(root, TOOLS)

    return derived_image(base_image(say), "rpmtools", code(__file__), change)


def repository(image: Image, names: Sequence[str], directory: Path) -> None:
    """Build packages and their metadata into `directory`."""
    for name in names:
        (directory / f"{name}.spec").write_text(SPEC.format(name=name))
    with toolbox(image, directory) as box:
        for name in names:
            box.run("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {directory}/build", f"{directory}/{name}.spec")
        box.run(
            "sh", "-c", 'mv "$1"/build/RPMS/noarch/*.rpm "$1" && rm -r "$1/build" "$1"/*.spec', "sh", str(directory)
        )
        box.run("createrepo_c", "--quiet", "--general-compress-type=gz", str(directory))


def image_of(directory: Path) -> OciImage:
    """An image with two layers: the files of the OS that do not matter here, and the packages."""
    base = _layer({"etc/os-release": b"ID=rhel-coreos-extensions\n"})
    files = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    packages = _layer({f"{DIRECTORY}/{name}": content for name, content in files.items()})
    layers = [gzip.compress(layer, mtime=0) for layer in (base, packages)]
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [_digest(base), _digest(packages)]},
        }
    ).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
        "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar+gzip", layer) for layer in layers],
    }
    return OciImage(json.dumps(manifest).encode(), {_digest(blob): blob for blob in (config, *layers)})


def _layer(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _descriptor(kind: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
