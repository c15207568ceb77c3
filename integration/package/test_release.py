# SPDX-License-Identifier: Apache-2.0
"""`make release`: all artefacts, built twice with the same bytes, with checksums, components, licences and changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from integration.package.conftest import EPOCH, Package, cannot

TIMEOUT = 1800.0  # seconds; the second build makes all parts again, on a machine that has other work to do
pytestmark = [pytest.mark.long, pytest.mark.timeout(TIMEOUT)]

# A build from source takes longer than a test may, so the interpreter of tests is allowed here.
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import platform, release
from bundle import lock
lock.RELEASED = lock.ORIGINS
release.release(Path(sys.argv[2]), platform.machine(), lock.TESTING, fast=True)
"""


def test_a_release_is_whole_and_built_twice_with_the_same_bytes(package: Package, tmp_path: Path) -> None:
    out = tmp_path / "release"
    out.mkdir()
    (out / "old").write_text("of another release")
    argv: list[str | Path] = [sys.executable, "-c", PROGRAM, package.source / "packaging", out]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if "missing: " in done.stderr:
        cannot(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    version = tomllib.loads((package.source / "pyproject.toml").read_text())["project"]["version"]
    machine = package.machine
    extension = f"nodeagent-{version}-{machine.replace('_', '-').replace('aarch64', 'arm64')}-testing.raw"
    built = {package.tar.name, f"nodeagent-{version}-0.testing.{machine}.rpm", extension}
    built |= {f"nodeagent-selinux-{version}-0.testing.noarch.rpm", f"nodeagent-python3-{version}-1.noarch.rpm"}
    built |= {f"nodeagent-{version}-py3-none-any.whl", "install.sh", "sbom.cdx.json"}
    built |= {f"nodeagent-{version}-{machine}-testing.oci.tar"}
    others = {"CHANGES.md", "LICENSES.txt"}
    assert {path.name for path in out.iterdir()} == built | others | {"SHA256SUMS"}
    checked = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=out, capture_output=True, text=True, check=True
    )
    assert len(checked.stdout.splitlines()) == len(built | others)
    # The same sources elsewhere, built by an earlier test.
    assert (out / package.tar.name).read_bytes() == package.tar.read_bytes()
    assert (out / extension).read_bytes() == package.raw.read_bytes()
    assert json.loads((out / "sbom.cdx.json").read_text())["metadata"]["component"]["version"] == version
    assert (out / "CHANGES.md").read_text().startswith(f"## {version}")
    licences = (out / "LICENSES.txt").read_text()
    assert all(f"\n{name}/LICENSE" in licences for name in ("openssl", "expat", "libffi", "mpdecimal"))
