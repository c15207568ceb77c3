# SPDX-License-Identifier: Apache-2.0
"""The origins of the interpreter: interface, hashes, and what the package lists of them. Nothing is fetched."""

from __future__ import annotations

import importlib
import json
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

PACKAGING = Path(__file__).parents[2] / "packaging"
LOCK = PACKAGING / "interpreter.toml"
LIBRARY = "lib/python3.14"
PROGRAM = b"\x7fELF\x02\x01 a program"


@pytest.fixture
def bundle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    monkeypatch.syspath_prepend(PACKAGING)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = ("cache", "components", "errors", "fetch", "images", "interpreter", "lock", "names", "origins", "tools")
    return SimpleNamespace(**{name: importlib.import_module(f"bundle.{name}") for name in names})


def locks(bundle: Any) -> Iterator[Any]:
    for origin in bundle.lock.ORIGINS:
        yield bundle.lock.load(LOCK, "x86_64", origin)


def test_every_origin_names_what_the_parts_were_made_of(bundle: Any) -> None:
    libraries = {name for name, _license in bundle.components.LIBRARIES} - {"libyaml", "llhttp"}
    for lock in locks(bundle):
        parts = bundle.origins.MODULES[lock.origin].parts(lock)
        assert {part.name for part in parts} == libraries, lock.origin
        assert len(parts) == len(libraries), lock.origin
        assert all(part.purl.startswith("pkg:") for part in parts)
        assert all(re.fullmatch("[0-9a-f]{64}", each) for part in parts for each in part.sha256)


def test_a_machine_without_an_interpreter_of_an_origin_is_an_error_with_the_remedy(bundle: Any, tmp_path: Path) -> None:
    with pytest.raises(bundle.errors.BuildError, match=r"source for aarch64; --interpreter standalone has one"):
        bundle.lock.load(LOCK, "aarch64", "source")
    text = LOCK.read_text().replace("[standalone.aarch64]", "[standalone.riscv64]")
    (tmp_path / "lock.toml").write_text(text)
    # The interpreter of tests has one, and is not offered.
    with pytest.raises(bundle.errors.BuildError, match=r"source for aarch64$"):
        bundle.lock.load(tmp_path / "lock.toml", "aarch64", "source")
    with pytest.raises(bundle.errors.BuildError, match=r"testing for s390x$"):
        bundle.lock.load(LOCK, "s390x", "testing")


def test_the_name_of_a_file_says_that_its_interpreter_is_for_tests(bundle: Any) -> None:
    released, testing = (bundle.names.Name("0.1.0", "x86_64", testing=each) for each in (False, True))
    assert released.file(".tar.gz") == "nodeagent-0.1.0-x86_64.tar.gz"
    assert testing.file(".tar.gz") == "nodeagent-0.1.0-x86_64-testing.tar.gz"
    assert testing.file(".oci.tar", "os") == "nodeagent-os-0.1.0-x86_64-testing.oci.tar"
    for name in (released, testing):
        assert bundle.names.Name.of(Path("dist", name.file(".tar.gz"))) == name
    assert "SYSEXT_VERSION_ID=0.1.0-testing\n" in bundle.images.extension_release(testing)
    assert "SYSEXT_VERSION_ID=0.1.0\n" in bundle.images.extension_release(released)


def test_only_the_used_files_of_an_origin_are_taken(bundle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Origin:
        def files(self, _lock: Any, wanted: Any) -> Iterator[tuple[PurePosixPath, bytes]]:
            yield PurePosixPath("bin/python3"), PROGRAM
            yield PurePosixPath("licenses/openssl/LICENSE"), b"text"
            for name in ("os.py", "test/test_os.py", "encodings/utf_8.py", "encodings/big5.py"):
                if wanted(path := PurePosixPath(LIBRARY, name)):
                    yield path, b""
                asked.append(name)

    monkeypatch.setitem(bundle.origins.MODULES, "testing", Origin())
    monkeypatch.setattr(bundle.interpreter, "Elf", SimpleNamespace(read=lambda _path: True))
    monkeypatch.setattr(bundle.interpreter.bytecode, "compile_tree", lambda *_arguments: None)
    lock = bundle.lock.load(LOCK, "x86_64", "testing")
    home = bundle.interpreter.build(lock)
    found = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    assert found == ["bin/python3", f"{LIBRARY}/encodings/utf_8.py", f"{LIBRARY}/os.py"]
    assert (bundle.interpreter.licenses(home) / "openssl" / "LICENSE").read_text() == "text"
    taken = list(asked)
    assert bundle.interpreter.build(lock) == home
    assert asked == taken, "the second build takes it from the cache"


def test_an_origin_without_a_program_gives_no_interpreter(bundle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [(PurePosixPath("bin/python3"), b"#!/bin/sh\n"), (PurePosixPath(LIBRARY, "os.py"), b"")]
    monkeypatch.setitem(bundle.origins.MODULES, "testing", SimpleNamespace(files=lambda _lock, _wanted: iter(files)))
    with pytest.raises(bundle.errors.BuildError, match="gave no interpreter"):
        bundle.interpreter.build(bundle.lock.load(LOCK, "x86_64", "testing"))
    assert not list(bundle.cache.root().glob("interpreter-*"))


def test_a_fetched_file_with_another_hash_is_refused(bundle: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"not it")
    with pytest.raises(bundle.errors.BuildError, match=r"zlib\.tar has sha256 [0-9a-f]{64}, the lock says 00"):
        bundle.fetch.check(tmp_path / "file", "0" * 64, "zlib.tar")


def test_standalone_takes_the_library_that_the_program_needs(bundle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    standalone = bundle.origins.MODULES["standalone"]
    lock = bundle.lock.load(LOCK, "x86_64", "standalone")
    name = f"cpython-{lock.python}-linux-x86_64-gnu"

    def run(argv: list[Any], *, timeout: float) -> bytes:
        if "install" in argv:
            top = Path(argv[argv.index("--install-dir") + 1], argv[-1])
            for path in ("bin/python3.14", "lib/libpython3.14.so.1.0", f"{LIBRARY}/os.py", f"{LIBRARY}/test/x.py"):
                (top / path).parent.mkdir(parents=True, exist_ok=True)
                (top / path).write_bytes(PROGRAM)
        return b"uv 1"

    monkeypatch.setattr(standalone.tools, "run", run)
    monkeypatch.setattr(standalone.tools, "uv", lambda: "uv")
    needed = ["libc.so.6"]
    elf = SimpleNamespace(data=PROGRAM, needed=lambda: needed)
    monkeypatch.setattr(standalone, "Elf", SimpleNamespace(read=lambda _path: elf))
    wanted = re.compile(r"(?!.*/test/)").match
    paths = [str(path) for path, _ in standalone.files(lock, lambda path: bool(wanted(str(path))))]
    assert paths == ["bin/python3", f"{LIBRARY}/os.py"]
    needed.append("libpython3.14.so.1.0")
    paths = [str(path) for path, _ in standalone.files(lock, lambda path: bool(wanted(str(path))))]
    assert paths == ["bin/python3", "lib/libpython3.14.so.1.0", f"{LIBRARY}/os.py"]
    assert [path.name for path in bundle.cache.root().glob("standalone-*/*")] == [name]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_uv_refuses_another_archive_than_the_locked_one(bundle: Any, tmp_path: Path, machine: str) -> None:
    standalone = bundle.origins.MODULES["standalone"]
    lock = bundle.lock.load(LOCK, machine, "standalone")
    archive = tmp_path / "mirror" / lock.details.archive
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("python"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_PYTHON_INSTALL_MIRROR", (tmp_path / "mirror").as_uri())
        with pytest.raises(bundle.errors.BuildError) as caught:
            list(standalone.files(lock, lambda _path: True))
    if "uv is missing" in str(caught.value) or "not on this machine" in str(caught.value):
        pytest.skip("this Python has no uv")
    assert "Hash mismatch" in str(caught.value)
    assert lock.details.sha256 in str(caught.value)
    assert not list(bundle.cache.root().glob("standalone-*"))


def test_the_sbom_names_the_origin_of_the_interpreter_and_of_its_parts(bundle: Any, tmp_path: Path) -> None:
    lock = bundle.lock.load(LOCK, "x86_64", "testing")
    parts = {part.name: part for part in bundle.origins.MODULES["testing"].parts(lock)}
    listed = [bundle.components._library("sqlite", "3.53.4", "blessing", parts["sqlite"])]
    listed += [bundle.components._library("libyaml", "0.2.5", "MIT", None)]
    bundle.components.write_sbom(listed, "1.0", "testing", tmp_path / "sbom")
    document = json.loads((tmp_path / "sbom").read_text())
    assert document["metadata"]["properties"] == [{"name": "nodeagent:interpreter", "value": "testing"}]
    sqlite, libyaml = document["components"]
    assert sqlite["purl"] == "pkg:generic/sqlite@3.53.4"
    hashes = [{"alg": "SHA-256", "content": parts["sqlite"].sha256[0]}]
    reference = {"type": "distribution", "url": parts["sqlite"].purl, "hashes": hashes}
    assert sqlite["externalReferences"] == [reference]
    assert "externalReferences" not in libyaml


def test_licence_texts_of_the_sources_replace_those_of_the_repository(bundle: Any, tmp_path: Path) -> None:
    own, packages = tmp_path / "own", tmp_path / "packages"
    (own / "expat").mkdir(parents=True)
    (own / "expat" / "LICENSE").write_text("of the source")
    packages.mkdir()
    bundle.components.copy_licenses(PACKAGING.parent, packages, own, tmp_path / "texts")
    assert (tmp_path / "texts" / "expat" / "LICENSE").read_text() == "of the source"
    assert (tmp_path / "texts" / "libffi" / "LICENSE").read_text() != ""


def test_the_cache_keeps_the_directories_of_a_kind_that_were_used_last(bundle: Any) -> None:
    made = [bundle.cache.directory("kind", str(number), lambda _to: None) for number in range(3)]
    for number, path in enumerate(made):
        os.utime(path, (number + 1, number + 1))
    (bundle.cache.root() / "kind-link").symlink_to(made[0])
    bundle.cache.bound("kind", 2)
    assert [path.exists() for path in made] == [False, True, True]


def test_the_cache_keeps_what_has_the_time_of_an_archive(bundle: Any) -> None:
    made = bundle.cache.directory("old", "1", lambda to: os.utime(to, (1, 1)))
    bundle.cache.directory("new", "1", lambda _to: None)
    assert made.exists()


def test_a_build_with_the_time_of_an_archive_is_not_pruned_by_another(bundle: Any) -> None:
    def make(to: Path) -> None:
        os.utime(to, (1, 1))
        bundle.cache.directory("new", "1", lambda _to: None)
        (to / "file").touch()

    assert (bundle.cache.directory("old", "1", make) / "file").exists()
