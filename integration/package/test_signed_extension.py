# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/usage/sign-extension.md: an image with dm-verity, whose hashes and signature other programs
check. integration/hosts/vm/test_sysext.py merges such an image, which needs the device mapper."""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.hosts.errors import CommandFailed
from integration.package import provisioning
from integration.package.conftest import Package
from integration.package.signing import Signer, policy
from integration.trees.toolbox import scratch

pytestmark = pytest.mark.long

SECTOR = 512
LABEL = b"system_u:object_r:bin_t:s0"


@pytest.fixture
def root() -> Iterator[Path]:
    image = provisioning.tools()
    with scratch(image) as root:
        yield root
    image.close()


def partitions(image: Path) -> dict[str, bytes]:
    """Return the content of each partition of a GPT by its name."""
    with image.open("rb") as file:
        file.seek(SECTOR)
        entries, count, size = struct.unpack_from("<QII", file.read(SECTOR), 72)
        found = {}
        for number in range(count):
            file.seek(entries * SECTOR + number * size)
            entry = file.read(size)
            first, last = struct.unpack_from("<QQ", entry, 32)
            if first:
                file.seek(first * SECTOR)
                found[entry[56:].decode("utf-16-le").rstrip("\0")] = file.read((last + 1 - first) * SECTOR)
    return found


def validate(signer: Signer, image: str) -> None:
    """Raises CommandFailed if the policy of the page refuses the image."""
    signer.run(f"SYSTEMD_LOG_TARGET=console systemd-dissect --validate {policy()} {image}")


def test_an_image_with_hashes_and_a_signature(root: Path, package: Package) -> None:
    signer = Signer(root, package.raw)
    work, run = signer.directory, signer.run
    signed = signer.sign()
    first = signed.read_bytes()
    assert os.getxattr(work / "signed/tree/usr/bin/nodeagent", "security.selinux").rstrip(b"\0") == LABEL
    validate(signer, "signed/nodeagent.raw")
    with pytest.raises(CommandFailed, match="does not match image policy"):
        validate(signer, "dist/nodeagent.raw")

    by_name = partitions(signed)
    data = next(name for name in by_name if not name.endswith(("-verity", "-verity-sig")))
    assert by_name.keys() == {data, f"{data}-verity", f"{data}-verity-sig"}
    (work / "data").write_bytes(by_name[data])
    (work / "hashes").write_bytes(by_name[f"{data}-verity"])
    found = json.loads(by_name[f"{data}-verity-sig"].rstrip(b"\0"))
    (work / "hash").write_text(found["rootHash"])
    (work / "signature").write_bytes(base64.b64decode(found["signature"]))
    check = "openssl smime -verify -binary -noverify -nointern -certfile {} -inform der -in signature -content hash"
    run(check.format("cert.pem"))
    run(f"veritysetup verify data hashes {found['rootHash']}")
    run("unsquashfs -quiet -no-progress -dest again data && diff -r signed/tree again")
    label = os.getxattr(work / "again/usr/bin/nodeagent", "security.selinux").rstrip(b"\0")
    assert label == LABEL

    # Another key, other data.
    run(signer.request.replace("key.pem", "other.key").replace("cert.pem", "other.pem"))
    with pytest.raises(CommandFailed, match=r"verif|signer"):
        run(check.format("other.pem"))
    with (work / "data").open("r+b") as file:
        file.seek(len(by_name[data]) // 2)
        file.write(bytes(64))
    with pytest.raises(CommandFailed, match="Verification"):
        run(f"veritysetup verify data hashes {found['rootHash']}")

    same = signer.sign().read_bytes() == first
    assert same, "another image from the same files"
