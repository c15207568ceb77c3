# SPDX-License-Identifier: Apache-2.0
"""A container registry that is a folder: `images/*.json` and an ostree repo beside them that holds the layers.

    {"name": "quay.io/example/os", "tags": ["stable"], "digest": "sha256:...", "version": "42.1",
     "layers": [{"digest": "sha256:...", "commit": "<ostree checksum>", "size": 1234, "kind": "ostree"}],
     "username": "u", "password": "p", "signature": "good"}

The last layer of kind "ostree" is the complete commit; those before it are pieces of the same tree, so that most of
its objects are there when it comes. Layers of kind "custom" lie over it, with whiteouts. A reference that nothing
published is unknown to it, one that wants a user refuses those without, and the words are skopeo's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.standins.rpmostreed.standin import auth, policy
from integration.standins.rpmostreed.standin.errors import Failed
from integration.standins.rpmostreed.standin.fault_injection import NetworkTrouble
from integration.standins.rpmostreed.standin.profile import Profile
from integration.standins.rpmostreed.standin.refspec import ImageReference

QUAY_DENIES = "unauthorized: access to the requested resource is not authorized"


@dataclass(frozen=True, slots=True)
class Layer:
    digest: str
    commit: str
    size: int
    custom: bool


@dataclass(frozen=True, slots=True)
class Image:
    digest: str
    version: str
    layers: tuple[Layer, ...]
    manifest: str  # JSON, kept in the merge commit
    config: str


class Registry:
    def __init__(self, folder: Path, profile: Profile) -> None:
        self._folder = folder
        self._profile = profile

    @property
    def repo_url(self) -> str:
        return f"file://{self._folder}/repo"

    def open(self, reference: ImageReference) -> Image:
        """The image, or Failed in the words of skopeo with this release's prefix."""
        try:
            return self._open(reference)
        except Failed as error:
            raise Failed(f"{self._profile.importer_prefix}{error}") from None

    def _open(self, reference: ImageReference) -> Image:
        manifest = f"reading manifest {reference.tag} in {reference.repository}: "
        found = self._find(reference)
        if found is None:
            if not self._folder.is_dir():
                raise Failed(network_error("unreachable", reference))
            raise Failed(f"{manifest}manifest unknown")
        if "password" in found:
            login = auth.credentials(reference.name)
            if login is None or login != (found.get("username", ""), found["password"]):
                raise Failed(f"{manifest}{QUAY_DENIES}")
        policy.check(reference, found.get("signature", "none"))
        return _image(found)

    def _find(self, reference: ImageReference) -> dict[str, Any] | None:
        for path in sorted((self._folder / "images").glob("*.json")):
            entry: dict[str, Any] = json.loads(path.read_text())
            if entry["name"] != reference.repository:
                continue
            if reference.digest is not None:
                if entry["digest"] == reference.digest:
                    return entry
            elif reference.tag in entry["tags"]:
                return entry
        return None


def network_error(kind: str, reference: ImageReference) -> str:
    """Return the error of Go's network stack; also for injected faults."""
    ping = f'pinging container registry {reference.registry_host}: Get "https://{reference.registry_host}/v2/": '
    match kind:
        case "unreachable" | "network":
            return f"{ping}dial tcp: lookup {reference.registry_host}: no such host"
        case "timeout":
            return f"{ping}net/http: TLS handshake timeout"
        case "refused":
            return f"{ping}dial tcp 192.0.2.1:443: connect: connection refused"
        case "unauthorized":
            return f"reading manifest {reference.tag} in {reference.repository}: {QUAY_DENIES}"
        case "not-found":
            return f"reading manifest {reference.tag} in {reference.repository}: manifest unknown"
        case "signature":
            return "A signature was required, but no signature exists"
        case "server":
            return (
                f"reading manifest {reference.tag} in {reference.repository}: received unexpected HTTP status: "
                "503 Service Unavailable"
            )
        case other:
            return other


def blob_error(trouble: NetworkTrouble, reference: ImageReference, layer: Layer, profile: Profile) -> str:
    """A layer that stops in the middle."""
    where = f"Importing: Unencapsulating base: Layer {layer.digest}: "
    if str(trouble) == "disk-full":
        digest = layer.digest.partition(":")[2]
        return (
            f"{where}Importing objects: Importing object {digest[:2]}/{digest[2:]}.file: "
            f"Processing content object {digest}: Importing regfile small: Writing content object: "
            "min-free-space-percent '3%' would be exceeded, at least 20.5 kB requested"
        )
    url = f"https://{reference.registry_host}/v2/{reference.repository.partition('/')[2]}/blobs/{layer.digest}"
    return f'{where}{profile.blob_prefix}Get "{url}": net/http: TLS handshake timeout'


def layers_of_manifest(manifest: str) -> list[str]:
    """Digests of the layers."""
    return [str(layer["digest"]) for layer in json.loads(manifest)["layers"]]


def _image(entry: dict[str, Any]) -> Image:
    layers = tuple(
        Layer(layer["digest"], layer["commit"], int(layer.get("size", 0)), layer.get("kind") == "custom")
        for layer in entry["layers"]
    )
    version = entry.get("version", "")
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": entry["digest"], "size": 2},
        "layers": [
            {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": one.digest, "size": one.size}
            for one in layers
        ],
    }
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Labels": {"org.opencontainers.image.version": version, "ostree.bootable": "true"}},
        "rootfs": {"type": "layers", "diff_ids": [one.digest for one in layers]},
    }
    return Image(entry["digest"], version, layers, json.dumps(manifest), json.dumps(config))
