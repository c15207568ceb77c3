# SPDX-License-Identifier: Apache-2.0
"""The parts of a release that need no build."""

from __future__ import annotations

import importlib
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import needs

PACKAGING = Path(__file__).parents[2] / "packaging"
GPG = ["gpg", "--batch", "--pinentry-mode", "loopback", "--passphrase", ""]
CHANGELOG = "# Changes\n\n## 0.2.0 - 2027-01-01\n\n- new\n\n## 0.1.0 - unreleased\n\n- first\n"


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(PACKAGING)
    return runpy.run_path(str(PACKAGING / "release.py"))


def test_the_section_of_a_version(release: dict[str, Any]) -> None:
    assert release["section"](CHANGELOG, "0.2.0") == "## 0.2.0 - 2027-01-01\n\n- new\n"
    assert release["section"](CHANGELOG, "0.1.0") == "## 0.1.0 - unreleased\n\n- first\n"
    with pytest.raises(Exception, match=r"no section for 0\.3\.0"):
        release["section"](CHANGELOG, "0.3.0")


@pytest.mark.parametrize("origin", ["source", "standalone", "testing"])
def test_no_release_has_the_interpreter_of_tests(release: dict[str, Any], tmp_path: Path, origin: str) -> None:
    sbom = tmp_path / "sbom"
    importlib.import_module("bundle.components").write_sbom([], "1.0", origin, sbom)
    if origin == "testing":
        with pytest.raises(Exception, match="testing is for tests only"):
            release["check_interpreter"](sbom)
    else:
        release["check_interpreter"](sbom)


def test_builds_that_differ_are_named_and_kept(release: dict[str, Any], tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for place, text in ((first, "a"), (second, "b")):
        place.mkdir()
        (place / "same").write_text("x")
        (place / "other").write_text(text)
    (second / "only").write_text("")
    different = release["compare"](first, second)
    assert different == ["only", "other"]
    kept = release["keep"](different, first, second, tmp_path / "kept")
    assert sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()) == [
        "1/other",
        "2/only",
        "2/other",
    ]


def test_a_release_replaces_the_one_before(release: dict[str, Any], tmp_path: Path) -> None:
    results, out = tmp_path / "results", tmp_path / "out"
    results.mkdir()
    (results / "new").write_text("")
    out.mkdir()
    (out / "old").write_text("")
    release["replace"](out, results)
    assert [path.name for path in out.iterdir()] == ["new"]
    assert {path.name for path in tmp_path.iterdir()} == {"results", "out"}


@needs("git")
def test_only_what_is_committed_is_released(release: dict[str, Any], tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in release["INPUTS"]:
        (source / name).mkdir(parents=True)
        (source / name / "file").write_text("committed")
    git = ["git", "-C", source, "-c", "user.name=n", "-c", "user.email=e@localhost"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "all"]):
        subprocess.run([*git, *command], check=True, timeout=60, capture_output=True)
    release["export"](source, tmp_path / "exported")
    assert (tmp_path / "exported/nodeagent/file").read_text() == "committed"
    (source / "nodeagent/file").write_text("changed")
    with pytest.raises(Exception, match="not committed"):
        release["export"](source, tmp_path / "again")


@pytest.fixture
def signing(release: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, with a key "publisher", an expired one, and two of one name."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    for name, usage, expires in (
        ("publisher", "sign", "never"),
        ("expired", "sign", "19990102T000000"),
        ("certifies", "cert", "never"),
        ("twice <a@localhost>", "sign", "never"),
        ("twice <b@localhost>", "sign", "never"),
    ):
        generate = ["--quick-generate-key", name, "ed25519", usage, expires]
        past = ["--faked-system-time", "19990101T000000"] if name == "expired" else []
        subprocess.run([*GPG, *past, *generate], check=True, timeout=60, capture_output=True)
    yield importlib.import_module("bundle.signing")
    subprocess.run(["gpgconf", "--kill", "all"], check=True, timeout=60)


@needs("gpg")
def test_the_sums_are_signed_with_the_key_of_the_caller(signing: Any, release: dict[str, Any], tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / "file").write_text("x")
    fingerprint = signing.check_key("publisher")
    signing.write_public(fingerprint, results / "publisher.asc")
    release["write_sums"](results)
    signing.sign_sums(results / "SHA256SUMS", fingerprint)
    other = ["gpg", "--homedir", tmp_path / "results"]
    results.chmod(0o700)
    subprocess.run([*other, "--import", results / "publisher.asc"], check=True, timeout=60, capture_output=True)
    signed = [results / "SHA256SUMS.gpg", results / "SHA256SUMS"]
    assert subprocess.run([*other, "--verify", *signed], timeout=60, check=False).returncode == 0
    signed[1].write_text("y")
    assert subprocess.run([*other, "--verify", *signed], timeout=60, check=False).returncode != 0


@needs("gpg")
def test_a_key_that_cannot_sign_is_reported_before_the_build(
    signing: Any, release: dict[str, Any], tmp_path: Path
) -> None:
    reasons = {"nobody": "nobody", "twice": "names 2 secret keys", "certifies": "exit status", "expired": "exit status"}
    for key, reason in reasons.items():
        with pytest.raises(Exception, match=reason):
            release["release"](tmp_path / "out", "x86_64", "source", key=key)
    assert not (tmp_path / "out").exists()
