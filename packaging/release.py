# SPDX-License-Identifier: Apache-2.0
"""Build all artefacts of a release: `python packaging/release.py --out dist/release`.

Everything is built twice from the commit, in different folders, with other modes and times of the sources, another
time zone, another umask, and without the parts that an earlier build left in the cache. The release is written only if
both builds have the same bytes, and replaces the directory --out.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path

import build as package
from bundle import cache, components, images, lock, signing, tools
from bundle.errors import BuildError
from bundle.names import NAME, Name
from bundle.origins.source import TIMEOUT as INTERPRETER_TIMEOUT

CHANGES, LICENSES = "CHANGES.md", "LICENSES.txt"
# Of the wheel without an extra, as pip reads them: versions and hashes.
REQUIREMENTS = "requirements.txt"
INPUTS = (*package.INPUTS, "README.md", "CHANGELOG.md")
# Seconds for one program of a build: it may build the interpreter, and Fedora's compression of the RPM takes minutes.
TIMEOUT = INTERPRETER_TIMEOUT + 1800.0
TEXTS = "usr/share/licenses/nodeagent/"
# What is fetched has a locked hash, or is signed by Debian: the second build takes it from the cache of the first.
FETCHED = ("maven-*", "wheel-*", "standalone-*", "debian-*", "buildtree-*")


def main(arguments: list[str]) -> int:
    parser = package.common_parser(__file__, __doc__, package.SOURCE / "dist" / "release", lock.RELEASED)
    parser.add_argument("--fast", action="store_true", help="compress the RPM less, for tests")
    parser.add_argument("--sign", default="", metavar="KEY", help="GPG key that signs the RPMs and the sums (none)")
    options = parser.parse_args(arguments)
    try:
        out = options.out.resolve()
        release(out, options.machine, options.interpreter, fast=options.fast, key=options.sign)
    except BuildError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def release(out: Path, machine: str, origin: str, *, fast: bool = False, key: str = "") -> None:
    """Write the release to `out`. Raises BuildError, and leaves `out` as it was."""
    # A key that is missing is reported before the build, which takes minutes.
    fingerprint = signing.check_key(key) if key else ""
    if key:
        tools.require("rpmsign")
    begun = time.monotonic()
    version: str = tomllib.loads((package.SOURCE / "pyproject.toml").read_text())["project"]["version"]
    changes = section((package.SOURCE / "CHANGELOG.md").read_text(), version)
    epoch = str(package.source_date_epoch())
    with tempfile.TemporaryDirectory(prefix="nodeagent-release-") as scratch:
        first, second = Path(scratch, "one"), Path(scratch, "another", "folder")
        for place in (first, second):
            export(package.SOURCE, place / "source")
        disguise(second / "source")
        same = {"SOURCE_DATE_EPOCH": epoch}
        build_all(first, machine, origin, {**same, "TZ": "UTC"}, fast=fast, umask=0o022)
        other = {"TZ": "Asia/Kathmandu", "XDG_CACHE_HOME": str(fresh_cache(second)), **uv_cache()}
        build_all(second, machine, origin, {**same, **other}, fast=fast, umask=0o077)
        if different := compare(first / "dist", second / "dist"):
            kept = keep(different, first / "dist", second / "dist", out.with_name(f"{out.name}-different"))
            raise BuildError(f"two builds differ in {', '.join(different)}; both are in {kept}")
        results = first / "dist"
        check_interpreter(results / components.SBOM)
        (results / CHANGES).write_text(changes)
        (tar,) = results.glob("nodeagent-*.tar.gz")
        (results / LICENSES).write_text(licenses(tar))
        if fingerprint:
            # After the comparison: a signature has the time in it.
            signing.sign_rpms(results, fingerprint)
            signing.write_public(fingerprint, results / signing.PUBLIC)
        write_sums(results)
        if fingerprint:
            signing.sign_sums(results / package.CHECKSUMS, fingerprint)
        replace(out, results)
    for path in sorted(out.iterdir()):
        tools.log(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
    if "unreleased" in changes.splitlines()[0]:
        tools.log(f"CHANGELOG.md has no date for {version} yet")
    tools.log(f"signed by {fingerprint}" if fingerprint else "not signed: no key was given")
    tools.log(f"built twice, with the same bytes, in {time.monotonic() - begun:.0f} s")


def check_interpreter(sbom: Path) -> None:
    """Raise BuildError if the list of components names an interpreter that no release may have."""
    properties = json.loads(sbom.read_text())["metadata"]["properties"]
    (origin,) = (entry["value"] for entry in properties if entry["name"] == components.ORIGIN)
    if origin not in lock.RELEASED:
        raise BuildError(f"the interpreter {origin} is for tests only, and no release has it")


def section(changelog: str, version: str) -> str:
    """Return the section of a version. Raises BuildError."""
    found = re.search(rf"^## {re.escape(version)}\b.*?(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise BuildError(f"CHANGELOG.md has no section for {version}")
    return found[0].strip() + "\n"


def export(source: Path, target: Path) -> None:
    """Write the sources of the last commit to `target`; all of them where there is no repository."""
    target.mkdir(parents=True)
    if not (source / ".git").exists():
        ignore = shutil.ignore_patterns("__pycache__")
        for name in INPUTS:
            if (source / name).is_dir():
                shutil.copytree(source / name, target / name, ignore=ignore, symlinks=True)
            else:
                shutil.copy(source / name, target / name)
        return
    if changed := tools.run(["git", "-C", source, "status", "--porcelain", "--", *INPUTS], timeout=60).decode():
        raise BuildError(f"a release is made from a commit; these files are not committed:\n{changed.rstrip()}")
    archive = tools.run(["git", "-C", source, "archive", "HEAD", *INPUTS], timeout=60)
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        # The 3.11.2 of Debian 12 has none.
        members.extraction_filter = getattr(tarfile, "data_filter", None)
        members.extractall(target)


def disguise(source: Path) -> None:
    """Give the sources the modes of another umask, and other times."""
    for path in source.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o700 if path.is_dir() or path.suffix == ".sh" else 0o600)
            os.utime(path, (1, 1))


def fresh_cache(place: Path) -> Path:
    """Return a cache without the parts that earlier builds made."""
    parts = place / "cache" / "nodeagent" / "package"
    parts.mkdir(parents=True)
    for pattern in FETCHED:
        for path in cache.root().glob(pattern):
            (parts / path.name).symlink_to(path)
    return place / "cache"


def uv_cache() -> Mapping[str, str]:
    """Keep uv's cache, which is below the other one unless it has a name of its own."""
    return {"UV_CACHE_DIR": tools.run([tools.uv(), "cache", "dir"], timeout=60).decode().strip()}


def build_all(
    place: Path, machine: str, origin: str, environment: Mapping[str, str], *, fast: bool, umask: int
) -> None:
    """Build all artefacts of `place`/source into `place`/dist."""
    source, out = place / "source", place / "dist"
    environ = {**os.environ, **environment}
    wheel = [tools.uv(), "build", "--wheel", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable]
    # The wheel takes the modes of the files in its folder, and setuptools writes a folder beside the sources.
    plain = shutil.copytree(source, place / "plain")
    for path in plain.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    tools.log(f"building in {place}")
    same: list[str | Path] = ["--out", out, "--machine", machine, "--interpreter", origin]
    rpm: list[str | Path] = [sys.executable, source / "packaging/build_rpm.py", *same]
    tools.run([*rpm, *(["--fast"] if fast else [])], timeout=TIMEOUT, env=environ, umask=umask)
    image: list[str | Path] = [sys.executable, source / "packaging/build_image.py", *same]
    tools.run(image, timeout=TIMEOUT, env=environ, umask=umask)
    tools.run([*wheel, "--out-dir", str(out), str(plain)], timeout=TIMEOUT, env=environ)
    locked = [tools.uv(), "export", "--quiet", "--offline", "--frozen", "--no-dev", "--no-emit-project", "--no-header"]
    (out / REQUIREMENTS).write_bytes(tools.run(locked, timeout=TIMEOUT, env=environ, cwd=plain))
    # systemd-sysupdate finds the newest version by the names.
    (tar,) = out.glob("nodeagent-*.tar.gz")
    extension = Name.of(tar)._replace(machine=images.ARCHITECTURES[machine])
    (out / f"{NAME}.raw").rename(out / extension.file(".raw"))
    # Of the build, not of the release: the stamp, the sums of a part, and what uv leaves.
    for name in (".inputs", ".gitignore", package.CHECKSUMS):
        (out / name).unlink(missing_ok=True)


def compare(first: Path, second: Path) -> list[str]:
    """Return the names that are not the same files in both directories."""
    names = {path.name for place in (first, second) for path in place.iterdir()}

    def same(name: str) -> bool:
        paths = (first / name, second / name)
        return all(path.is_file() for path in paths) and paths[0].read_bytes() == paths[1].read_bytes()

    return sorted(name for name in names if not same(name))


def keep(names: list[str], first: Path, second: Path, target: Path) -> Path:
    """Copy what differs to `target`, for a comparison, and return it."""
    shutil.rmtree(target, ignore_errors=True)
    for number, place in enumerate((first, second), 1):
        (target / str(number)).mkdir(parents=True)
        for name in names:
            if (place / name).is_file():
                shutil.copy2(place / name, target / str(number))
    return target


def licenses(tar: Path) -> str:
    """Return the licence texts of all that is bundled, each after the name of its component."""
    texts: list[str] = []
    with tarfile.open(tar) as archive:
        for member in archive:
            if member.isreg() and member.name.startswith(TEXTS) and (file := archive.extractfile(member)):
                title = member.name.removeprefix(TEXTS)
                texts.append(f"{'=' * 80}\n{title}\n{'=' * 80}\n\n{file.read().decode(errors='replace').rstrip()}\n")
    if not texts:
        raise BuildError(f"{tar.name} has no licence texts")
    return "\n".join(texts)


def write_sums(results: Path) -> None:
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(results.iterdir())}
    (results / package.CHECKSUMS).write_text("".join(f"{value}  {name}\n" for name, value in sums.items()))


def replace(out: Path, results: Path) -> None:
    """Put `results` in the place of `out`. They may be on different file systems."""
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        shutil.copytree(results, fresh, dirs_exist_ok=True)
        for path in fresh.iterdir():
            path.chmod(0o755 if path.suffix == ".sh" else 0o644)
        fresh.chmod(0o755)
        if out.exists():
            shutil.rmtree(out)
        fresh.rename(out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
