# SPDX-License-Identifier: Apache-2.0
"""The writer of OCI images, on archives of a few bytes."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

PACKAGING = Path(__file__).parents[2] / "packaging"
EPOCH = 1_700_000_000


@pytest.fixture
def oci(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(PACKAGING)
    return importlib.import_module("bundle.oci")


def layer(name: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return gzip.compress(buffer.getvalue(), mtime=0)


def image(oci: Any, name: str = "usr", machine: str = "x86_64", **labels: str) -> Any:
    return oci.Image(layer(name), machine, labels, f"tag-of-{name}", EPOCH)


def blobs(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: _read(archive, member) for member in archive if member.isreg()}


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def parts(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return manifest and config, after checking that every blob has its digest."""
    found = blobs(path)
    for name, data in found.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"
    (described,) = json.loads(found["index.json"])["manifests"]
    manifest = json.loads(found[blob(described["digest"])])
    return manifest, json.loads(found[blob(manifest["config"]["digest"])])


def blob(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def rewritten(path: Path, changes: dict[str, bytes]) -> Path:
    """Return a copy of an archive with other contents."""
    target = path.with_name("rewritten.tar")
    with tarfile.open(target, "w") as archive:
        for name, data in {**blobs(path), **changes}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return target


def test_a_layer_alone_is_a_whole_image_and_the_same_bytes_each_time(oci: Any, tmp_path: Path) -> None:
    first, second = tmp_path / "1.tar", tmp_path / "2.tar"
    digest = oci.write(image(oci, own="1"), first)
    assert digest == oci.write(image(oci, own="1"), second)
    assert first.read_bytes() == second.read_bytes()
    manifest, config = parts(first)
    assert len(manifest["layers"]) == 1
    assert config["architecture"] == "amd64"
    assert config["config"]["Labels"] == {"own": "1"}
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(gzip.decompress(layer('usr'))).hexdigest()}"]
    with tarfile.open(first) as archive:
        assert {member.mtime for member in archive} == {EPOCH}


def test_a_layer_on_a_base_keeps_its_layers_and_labels(oci: Any, tmp_path: Path) -> None:
    base, both = tmp_path / "base.tar", tmp_path / "both.tar"
    oci.write(image(oci, "os", version="42", own="0"), base)
    oci.write(image(oci, "usr", own="1"), both, base)
    manifest, config = parts(both)
    assert [len(manifest["layers"]), len(config["rootfs"]["diff_ids"]), len(config["history"])] == [2, 2, 2]
    assert config["config"]["Labels"] == {"version": "42", "own": "1"}
    assert manifest["layers"][0] == parts(base)[0]["layers"][0]


def test_a_base_that_is_no_image_for_this_machine_is_refused(oci: Any, tmp_path: Path) -> None:
    base, target = tmp_path / "base.tar", tmp_path / "out.tar"
    oci.write(image(oci, "os"), base)
    index = json.loads(blobs(base)["index.json"])
    manifest = parts(base)[0]
    bad_digest = {"manifests": [{"digest": "sha256:../../etc/passwd"}]}
    nested = b'{"manifests": []}'
    broken = {
        "two images": {"index.json": json.dumps({"manifests": index["manifests"] * 2}).encode()},
        "a path for a digest": {"index.json": json.dumps(bad_digest).encode()},
        "an absent manifest": {"index.json": json.dumps({"manifests": [{"digest": "sha256:" + "0" * 64}]}).encode()},
        "another manifest": {blob(index["manifests"][0]["digest"]): b"{}"},
        "another layer": {blob(manifest["layers"][0]["digest"]): b"other"},
        "no JSON": {"index.json": b"<"},
        "a list": {"index.json": b"[]"},
        "a huge document": {"index.json": b" " * (oci.MAX_JSON + 1)},
        "several architectures": {
            "index.json": json.dumps(
                {"manifests": [{"digest": f"sha256:{hashlib.sha256(nested).hexdigest()}"}]}
            ).encode(),
            f"blobs/sha256/{hashlib.sha256(nested).hexdigest()}": nested,
        },
    }
    refused = importlib.import_module("bundle.errors").BuildError
    for what, changes in broken.items():
        with pytest.raises(refused):
            oci.write(image(oci), target, rewritten(base, changes))
            pytest.fail(what)
    with pytest.raises(refused, match="amd64, not for arm64"):
        oci.write(image(oci, machine="aarch64"), target, base)
    (tmp_path / "text").write_text("no tar")
    for path in (tmp_path / "text", tmp_path / "absent"):
        with pytest.raises(refused, match="not an OCI archive"):
            oci.write(image(oci), target, path)
