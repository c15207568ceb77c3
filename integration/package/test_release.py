# SPDX-License-Identifier: Apache-2.0
"""`make release`: all artefacts, built twice with the same bytes, with checksums, components, licences and changes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.package.conftest import EPOCH, SOURCE, Package, cannot

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
release.release(Path(sys.argv[2]), platform.machine(), lock.TESTING, fast=True, key=sys.argv[3])
"""
PAGE = SOURCE / "docs/usage/verify-a-release.md"
KEY = "publisher"


@pytest.fixture
def keyring(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """The keyring of the publisher. A call changes to an empty one, of a user."""
    homes = [tmp_path_factory.mktemp(name) for name in (KEY, "user")]
    monkeypatch.setenv("GNUPGHOME", str(homes[0]))
    generate = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", KEY, "rsa3072", "sign", "never"]
    subprocess.run(generate, check=True, capture_output=True, timeout=120)
    yield lambda: monkeypatch.setenv("GNUPGHOME", str(homes[1]))
    for home in homes:
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True, timeout=60)


def page(begin: str, where: Path, **names: object) -> str:
    """Run the commands of the page, with rpm's keys in a database of the test, and return what they say."""
    database = f"{where}-rpm"
    script = "\n".join(line.replace("rpmkeys", f"rpmkeys --dbpath {database}") for line in block(begin))
    for name, value in names.items():
        script = script.replace(name, str(value))
    done = subprocess.run(["bash", "-euc", script], cwd=where, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def block(begin: str) -> list[str]:
    found = re.search(r"\n\n((?:    .+\n)+)", PAGE.read_text().partition(begin)[2])
    assert found is not None, begin
    return [line.removeprefix("    ").partition(" #")[0] for line in found[1].splitlines()]


def test_a_release_is_whole_and_built_twice_with_the_same_bytes(
    package: Package, tmp_path: Path, keyring: Callable[[], None]
) -> None:
    out = tmp_path / "release"
    out.mkdir()
    (out / "old").write_text("of another release")
    argv: list[str | Path] = [sys.executable, "-c", PROGRAM, package.source / "packaging", out, KEY]
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
    others = {"CHANGES.md", "LICENSES.txt", "requirements.txt", "publisher.asc"}
    assert {path.name for path in out.iterdir()} == built | others | {"SHA256SUMS", "SHA256SUMS.gpg"}
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
    keyring()
    verify_by_the_page(out, tmp_path)


def verify_by_the_page(out: Path, tmp_path: Path) -> None:
    said = page("Where the files were downloaded", out)
    assert "Good signature" in said
    assert said.count(": OK") == len((out / "SHA256SUMS").read_text().splitlines())
    said = page("## The RPM", out)
    assert said.splitlines() == [f"{path.name}: digests signatures OK" for path in sorted(out.glob("*.rpm"))]
    # Another build has no signatures.
    other = tmp_path / "other"
    shutil.copytree(out, other / "dist/release")
    (other / "dist/release/publisher.asc").unlink()
    for path in (other / "dist/release").glob("*.rpm"):
        subprocess.run(["rpmsign", "--delsign", path], check=True, capture_output=True, timeout=60)
        assert path.read_bytes() != (out / path.name).read_bytes()
    checkout, make, *compare = block("## Build it again")
    assert (checkout, make) == ("git checkout v0.1.0", "make release")
    script = "\n".join(compare).replace("RELEASE", str(out))
    argv = ["bash", "-euc", script]
    done = subprocess.run(argv, cwd=other, capture_output=True, text=True, timeout=120, check=True)
    lines = [line.split() for line in done.stdout.splitlines() if not line.endswith(": OK")]
    assert [(count, name) for count, name, _digest in lines] == [
        ("2", "nodeagent"),
        ("2", "nodeagent-python3"),
        ("2", "nodeagent-selinux"),
    ]
    # A file that was changed, and an RPM.
    (other / "dist/release/install.sh").write_text("")
    assert subprocess.run(argv, cwd=other, capture_output=True, timeout=120, check=False).returncode != 0
    rpm = next(out.glob("*python3*.rpm"))
    content = bytearray(rpm.read_bytes())
    content[-1] ^= 1
    rpm.write_bytes(content)
    check = ["rpmkeys", f"--dbpath={out}-rpm", "--checksig", str(rpm)]
    assert subprocess.run(check, capture_output=True, timeout=60, check=False).returncode != 0
