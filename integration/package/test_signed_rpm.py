# SPDX-License-Identifier: Apache-2.0
"""A release signs each RPM with the key of its publisher, and what the signature covers stays as it was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.hosts.errors import Unavailable
from integration.hosts.requirements import install
from integration.package.conftest import SOURCE, cannot

TIMEOUT = 60.0  # seconds
SPEC = """\
Name: {name}
Version: 1
Release: 1
Summary: Nothing
License: MIT
BuildArch: noarch
%description
Nothing.
%files
"""


@pytest.fixture
def fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """That of a key in a keyring of the test."""
    try:
        install(print, "gpg", "rpmsign", "rpmbuild")
    except Unavailable as error:
        cannot(str(error))
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    said("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "publisher", "rsa3072", "sign", "never")
    yield signing().check_key("publisher")
    said("gpgconf", "--kill", "all")


def test_each_rpm_is_signed_and_what_it_signs_stays(fingerprint: str, tmp_path: Path) -> None:
    results, empty = tmp_path / "results", f"{tmp_path}/empty"
    for name in ("a", "b"):
        spec = tmp_path / f"{name}.spec"
        spec.write_text(SPEC.format(name=name))
        macros = {"_topdir": f"{tmp_path}/top", "_rpmdir": str(results), "_build_name_fmt": f"{name}.rpm"}
        defined = [word for key, value in macros.items() for word in ("--define", f"{key} {value}")]
        said("rpmbuild", "-bb", "--quiet", *defined, str(spec))
    query = [
        "rpm",
        "--query",
        "--package",
        "--queryformat",
        "%{SHA256HEADER}\n",
        f"{results}/a.rpm",
        f"{results}/b.rpm",
    ]
    before = said(*query)
    signing().sign_rpms(results, fingerprint)
    assert said(*query) == before
    assert sorted(path.name for path in results.iterdir()) == ["a.rpm", "b.rpm"]
    for name in ("a", "b"):
        # The key is not known here, so the answer shows that there is a signature.
        check = ["rpmkeys", "--dbpath", empty, "--checksig", f"{results}/{name}.rpm"]
        done = subprocess.run(check, check=False, timeout=TIMEOUT, capture_output=True, text=True)
        assert (done.returncode, "SIGNATURES NOT OK" in done.stdout) == (1, True)


def test_an_rpm_that_cannot_be_signed_is_an_error(fingerprint: str, tmp_path: Path) -> None:
    (tmp_path / "a.rpm").write_text("no package")
    with pytest.raises(Exception, match="rpmsign"):
        signing().sign_rpms(tmp_path, fingerprint)


def said(*argv: str) -> str:
    return subprocess.run(argv, check=True, timeout=TIMEOUT, capture_output=True, text=True).stdout


def signing() -> Any:
    if (scripts := str(SOURCE / "packaging")) not in sys.path:
        sys.path.append(scripts)
    from bundle import signing

    return signing
