# SPDX-License-Identifier: Apache-2.0
"""Put a layer of ours on an image with umoci. skopeo reads a base image, and checks it against its digests.

Both work on a directory with the layout of the OCI image specification, without root and without a container engine.
The bytes depend on the content, the base, and the version of umoci, which compresses the layer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bundle import tools
from bundle.errors import BuildError

# Go's names for architectures, which the specification uses.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
TIMEOUT = 600.0  # seconds for one program; a base has gigabytes


class Image(NamedTuple):
    """What to write. `tag` is the name inside the archive, `epoch` the time of creation in seconds."""

    layer: Path  # a tar, not compressed
    machine: str
    labels: Mapping[str, str]
    tag: str
    epoch: int


def write(image: Image, target: Path, scratch: Path, base: Path | None = None) -> None:
    """Write an archive with `image` to `target`, by way of the directory `scratch`.

    Raises BuildError if `base` is not an OCI archive of one image for this machine.
    """
    umoci, skopeo, tar = (tools.require(name) for name in ("umoci", "skopeo", "tar"))
    layout, architecture = scratch / "layout", ARCHITECTURES[image.machine]
    reference = f"{layout}:{image.tag}"
    if base is None:
        tools.run([umoci, "init", "--layout", layout], timeout=TIMEOUT)
        tools.run([umoci, "new", "--image", reference], timeout=TIMEOUT)
    else:
        # The policy is about signatures of registries, and this is a file.
        options = ["--insecure-policy", "--override-os=linux", f"--override-arch={architecture}", f"--tmpdir={scratch}"]
        copy = ["copy", "--quiet", f"oci-archive:{base}", f"oci:{reference}"]
        tools.run([skopeo, *options, *copy], timeout=TIMEOUT)
        config = json.loads(tools.run([skopeo, "inspect", "--config", f"oci:{reference}"], timeout=TIMEOUT))
        if config["architecture"] != architecture:
            raise BuildError(f"{base.name} is an image for {config['architecture']}, not for {architecture}")
    created = datetime.fromtimestamp(image.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    history = [f"--history.created={created}", f"--history.created_by={image.tag}"]
    tools.run([umoci, "raw", "add-layer", "--image", reference, *history, image.layer], timeout=TIMEOUT)
    settings = [f"--created={created}", f"--architecture={architecture}", "--os=linux"]
    settings += [f"--config.label={key}={value}" for key, value in sorted(image.labels.items())]
    tools.run([umoci, "config", "--image", reference, "--no-history", *settings], timeout=TIMEOUT)
    # Of the steps in between.
    tools.run([umoci, "gc", "--layout", layout], timeout=TIMEOUT)
    fixed = ["--sort=name", f"--mtime=@{image.epoch}", "--owner=root:0", "--group=root:0", "--mode=u=rwX,go=rX"]
    pack: list[str | Path] = [
        tar,
        "--create",
        "--file",
        target,
        *fixed,
        "--directory",
        layout,
        "blobs",
        "index.json",
        "oci-layout",
    ]
    tools.run(pack, timeout=TIMEOUT)
