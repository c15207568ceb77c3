# SPDX-License-Identifier: Apache-2.0
"""The interpreter that is built from Debian's source packages: what is verified before. Nothing is built."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.needs import needs

PACKAGING = Path(__file__).parents[2] / "packaging"
LOCK = PACKAGING / "interpreter.toml"
SUITES = ("stable", "stable-security")


@pytest.fixture
def bundle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    monkeypatch.syspath_prepend(PACKAGING)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = ("cache", "components", "debian", "errors", "lock", "sandbox", "tools")
    modules = {name: importlib.import_module(f"bundle.{name}") for name in names}
    monkeypatch.setattr(modules["tools"], "install", lambda _name: None)
    return SimpleNamespace(**modules, source=importlib.import_module("bundle.origins.source"))


@pytest.fixture
def lock(bundle: Any) -> Any:
    return bundle.lock.load(LOCK, "x86_64", "source")


class Archive:
    """An archive of Debian with one source package, signed with a key of its own."""

    def __init__(self, bundle: Any, top: Path) -> None:
        self.top, self.home, self.keyrings = top / "archive", top / "gpg", top / "keyrings"
        self.home.mkdir(mode=0o700)
        self.keyrings.mkdir()
        self.gpg("--passphrase", "", "--quick-generate-key", "archive", "ed25519", "sign", "never")
        (self.keyrings / "debian-archive-keyring.gpg").write_bytes(self.gpg("--export"))
        self.pool = self.top / "pool"
        self.pool.mkdir(parents=True)
        self.write({"demo_1.dsc": b"a description", "demo_1.tar.gz": b"sources"})
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self.pool.iterdir()}
        self.package = bundle.lock.SourcePackage("demo", "1", "1", files)
        self._bundle = bundle

    def gpg(self, *arguments: str, stdin: bytes = b"") -> bytes:
        argv = ["gpg", "--homedir", str(self.home), "--batch", "--quiet", "--pinentry-mode", "loopback", *arguments]
        return subprocess.run(argv, input=stdin, capture_output=True, timeout=60, check=True).stdout

    def write(self, files: dict[str, bytes], *, version: str = "1") -> None:
        """Put these files into the archive, with a signed index of them."""
        for name, content in files.items():
            (self.pool / name).write_bytes(content)
        sums = "".join(f"\n {hashlib.sha256(each).hexdigest()} {len(each)} {name}" for name, each in files.items())
        index = f"Package: demo\nFormat: 3.0 (quilt)\nBinary: demo\nVersion: {version}\nDirectory: pool\n"
        index += f"Checksums-Sha256:{sums}\n\n"
        for suite in SUITES:
            listed = self.top / "dists" / suite / "main" / "source" / "Sources"
            listed.parent.mkdir(parents=True, exist_ok=True)
            listed.write_text(index)
            digest = hashlib.sha256(index.encode()).hexdigest()
            release = f"Origin: Debian\nCodename: {suite}\nComponents: main\nDate: Sat, 01 Jan 2022 00:00:00 UTC\n"
            release += f"SHA256:\n {digest} {len(index)} main/source/Sources\n"
            signed = listed.parents[2] / "InRelease"
            signed.write_bytes(self.gpg("--clearsign", stdin=release.encode()))

    def fetch(self) -> Path:
        found: Path = self._bundle.debian.fetch_sources({"demo": self.package}, SUITES)["demo"]
        return found


@pytest.fixture
def archive(bundle: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Archive]:
    archive = Archive(bundle, tmp_path)
    monkeypatch.setattr(bundle.debian, "KEYRINGS", archive.keyrings)
    # The folders of a test are not readable for another user.
    monkeypatch.setattr(bundle.debian, "_user", lambda: None)
    for name in (bundle.debian.ARCHIVE, bundle.debian.SECURITY):
        monkeypatch.setenv(name, archive.top.as_uri())
    yield archive
    # gpg starts an agent, which would stay.
    argv = ["gpgconf", "--homedir", str(archive.home), "--kill", "gpg-agent"]
    subprocess.run(argv, timeout=60, check=True)


def apt(test: Any) -> Any:
    return needs("apt-get")(needs("gpg")(test))


@apt
def test_a_source_package_is_fetched_once(archive: Archive) -> None:
    found = archive.fetch()
    assert {path.name: path.read_bytes() for path in found.iterdir()} == {
        "demo_1.dsc": b"a description",
        "demo_1.tar.gz": b"sources",
    }
    shutil.rmtree(archive.top)
    assert archive.fetch() == found


@apt
def test_an_index_with_another_signature_is_refused(archive: Archive, bundle: Any) -> None:
    archive.gpg("--passphrase", "", "--quick-generate-key", "other", "ed25519", "sign", "never")
    (archive.keyrings / "debian-archive-keyring.gpg").write_bytes(archive.gpg("--export", "other"))
    with pytest.raises(bundle.errors.BuildError, match="NO_PUBKEY"):
        archive.fetch()
    assert not list(bundle.cache.root().glob("debian-*"))


@apt
def test_an_index_without_a_signature_is_refused(archive: Archive, bundle: Any) -> None:
    for path in archive.top.rglob("InRelease"):
        text = path.read_text()
        (path.parent / "Release").write_text(text.split("\n\n", 1)[1].split("-----BEGIN PGP SIGNATURE")[0])
        path.unlink()
    with pytest.raises(bundle.errors.BuildError, match="not signed"):
        archive.fetch()


@apt
def test_a_changed_index_is_refused(archive: Archive, bundle: Any) -> None:
    for path in archive.top.rglob("Sources"):
        path.write_text(path.read_text().replace("Binary: demo", "Binary: mode"))
    with pytest.raises(bundle.errors.BuildError, match="Hash Sum mismatch"):
        archive.fetch()


@apt
def test_a_file_that_differs_from_the_signed_index_is_refused(archive: Archive, bundle: Any) -> None:
    (archive.pool / "demo_1.tar.gz").write_bytes(b"SOURCES")
    with pytest.raises(bundle.errors.BuildError, match="Hash Sum mismatch"):
        archive.fetch()
    assert not list(bundle.cache.root().glob("debian-*"))


@apt
def test_a_file_that_is_signed_but_not_the_locked_one_is_refused(archive: Archive, bundle: Any) -> None:
    archive.write({"demo_1.dsc": b"a description", "demo_1.tar.gz": b"SOURCES"})
    with pytest.raises(bundle.errors.BuildError, match=r"demo_1\.tar\.gz has sha256 [0-9a-f]{64}, the lock says"):
        archive.fetch()
    assert not list(bundle.cache.root().glob("debian-*"))


@apt
def test_a_version_that_the_archive_replaced_is_an_error_with_the_remedy(archive: Archive, bundle: Any) -> None:
    archive.write({"demo_2.dsc": b"a description", "demo_1.tar.gz": b"sources"}, version="2")
    with pytest.raises(bundle.errors.BuildError, match=r"demo 1 of .* cannot be fetched from stable, stable-security"):
        archive.fetch()


@apt
def test_the_settings_of_the_machine_are_not_used(archive: Archive, bundle: Any) -> None:
    with bundle.debian._apt(SUITES) as (_folder, environment):
        dump = subprocess.run(["apt-config", "dump"], env=environment, capture_output=True, text=True, check=True)
    assert not re.search(r"^(DPkg|APT::Update)::(Pre|Post)-Invoke.*::", dump.stdout, re.MULTILINE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_does_not_parse_what_the_network_gives(bundle: Any) -> None:
    done = bundle.tools.run(["id", "-u"], timeout=10, user=bundle.debian._user())
    assert done.strip() == b"65534"
    assert bundle.tools.run(["id", "-G"], timeout=10, user=bundle.debian._user()).strip() == b"65534"


def test_a_machine_without_mirrors_is_an_error_with_the_remedy(bundle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle.debian.shutil, "which", lambda _program: None)
    package = bundle.lock.SourcePackage("demo", "1", "1", {"demo_1.dsc": "0" * 64})
    with pytest.raises(bundle.errors.BuildError, match="name them in NODEAGENT_DEBIAN_ARCHIVE and NODEAGENT_DEBIAN_S"):
        bundle.debian.fetch_sources({"demo": package}, SUITES)


def test_the_lock_has_every_file_of_a_package(lock: Any, bundle: Any) -> None:
    assert set(lock.details.packages) == set(bundle.source.ORDER)
    for name, package in lock.details.packages.items():
        version = package.version.partition(":")[2] or package.version
        assert f"{package.package}_{version}.dsc" in package.files, name
        assert package.upstream in version, name
        assert all(re.fullmatch("[0-9a-f]{64}", each) for each in package.files.values()), name
    assert lock.details.packages["python"].upstream == lock.python


def test_a_part_with_another_version_than_the_locked_one_is_refused(lock: Any, bundle: Any) -> None:
    parts = {part.name: part for part in bundle.source.parts(lock)}
    assert parts["zlib"].purl == "pkg:deb/debian/zlib@1%3A1.3.dfsg%2Breally1.3.1-1?arch=source"
    assert bundle.components._library("libffi", "", "MIT", parts["libffi"]).version == parts["libffi"].version
    with pytest.raises(bundle.errors.BuildError, match=r"has openssl 3\.0\.0, the lock says 3\."):
        bundle.components._library("openssl", "3.0.0", "Apache-2.0", parts["openssl"])


def test_the_parts_are_built_in_the_sandbox_within_the_time(
    lock: Any, bundle: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[tuple[str, float]] = []

    def run(_tree: Path, work: Path, argv: list[str], timeout: float) -> None:
        assert (work / argv[1].removeprefix("/srv/")).read_bytes() == bundle.source.RECIPE.read_bytes()
        assert (work / "sources" / argv[-1] / "file").read_bytes() == argv[-1].encode()
        ran.append((argv[-1], timeout))
        if argv[-1] == "python":
            for name in ("bin/python3", "lib/python3/os.py", "lib/python3/test/x.py", "compiler"):
                (work / "out" / name).parent.mkdir(parents=True, exist_ok=True)
                (work / "out" / name).write_text(name)

    def fetched(packages: dict[str, Any], _suites: Any) -> dict[str, Path]:
        for name in packages:
            (tmp_path / name).mkdir()
            (tmp_path / name / "file").write_text(name)
        return {name: tmp_path / name for name in packages}

    monkeypatch.setattr(bundle.sandbox, "tree", lambda suite: tmp_path / suite)
    monkeypatch.setattr(bundle.sandbox, "give", lambda _work: None)
    monkeypatch.setattr(bundle.sandbox, "run", run)
    monkeypatch.setattr(bundle.debian, "fetch_sources", fetched)
    paths = [str(path) for path, _ in bundle.source.files(lock, lambda path: "test" not in path.parts)]
    assert paths == ["bin/python3", "lib/python3/os.py"]
    assert [name for name, _ in ran] == list(bundle.source.ORDER)
    assert bundle.source.TIMEOUT >= ran[0][1] >= ran[-1][1] > 0
    built = bundle.source.build(lock)
    assert len(ran) == len(bundle.source.ORDER), "the second build takes it from the cache"
    assert (built / "compiler").is_file()
    assert not (built / "work").exists()


def test_only_files_and_folders_are_taken_from_a_build(bundle: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to("/etc/shadow")
    with pytest.raises(bundle.errors.BuildError, match="link, which is neither a file nor a folder"):
        bundle.source._take(tmp_path / "out", tmp_path)


def test_the_comparison_of_two_builds_names_what_differs(bundle: Any, tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / str(number) / "lib").mkdir(parents=True)
        (tmp_path / str(number) / "lib" / "same").write_text("")
        (tmp_path / str(number) / "lib" / "other").write_text(str(number))
    (tmp_path / "2" / "more").write_text("")
    assert bundle.source.compare(tmp_path / "1", tmp_path / "2") == ["lib/other", "more"]
    assert bundle.source.compare(tmp_path / "1", tmp_path / "1") == []


def test_releases_have_the_interpreter_that_is_built_from_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PACKAGING)
    release = runpy.run_path(str(PACKAGING / "release.py"))
    origins: list[str] = []
    namespace = release["main"].__globals__
    monkeypatch.setitem(namespace, "release", lambda _out, _machine, origin, **_: origins.append(origin))
    assert release["main"]([]) == 0
    assert release["main"](["--interpreter", "standalone"]) == 0
    assert origins == ["source", "standalone"]
    with pytest.raises(SystemExit):
        release["main"](["--interpreter", "testing"])


@pytest.mark.parametrize("program", ["build", "build_rpm", "build_image"])
def test_users_get_the_interpreter_that_is_built_from_source(
    program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(PACKAGING)
    package = importlib.import_module("build")
    origins: list[str] = []

    def build(_out: Path, _machine: str, origin: str, **_options: bool) -> Path:
        origins.append(origin)
        raise package.BuildError("nothing is built here")

    monkeypatch.setattr(package, "build", build)
    monkeypatch.setattr(package.tools, "require", lambda name: name)
    monkeypatch.chdir(tmp_path)
    module = package if program == "build" else importlib.import_module(program)
    assert module.main([]) == 1
    assert origins == ["source"]


PAGES = [PACKAGING.parent / "README.md", *(PACKAGING.parent / "docs").rglob("*.md")]


def test_no_page_for_users_offers_the_interpreter_of_tests() -> None:
    found = [path for path in PAGES if re.search("INTERPRETER=testing|--interpreter testing", path.read_text())]
    assert {path.parent.name for path in found} <= {"development", "research"}


def test_whether_the_interpreter_is_in_the_cache(bundle: Any, lock: Any) -> None:
    build = importlib.import_module("build_interpreter")
    assert build.main(["--cached"]) == 1
    (bundle.cache.root() / f"{bundle.source.KIND}-{bundle.source.key(lock)}").mkdir(parents=True)
    assert build.main(["--cached"]) == 0
