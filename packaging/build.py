# SPDX-License-Identifier: Apache-2.0
"""Build the self-contained package: `python packaging/build.py --out dist`.

Writes nodeagent-VERSION-MACHINE.tar.gz (to unpack over /; install.sh does that and upgrades), nodeagent.raw (a
systemd-sysext image), sbom.cdx.json (what is bundled, as CycloneDX) and SHA256SUMS. The name of a tar whose interpreter
is for tests only ends with -testing.
The same commit gives the same bytes; an unchanged tree is not built again.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bundle import cache, components, dependencies, images, interpreter, lock, tools, tree
from bundle.errors import BuildError
from bundle.names import NAME, TAR, Name
from bundle.origins.base import HOME

SOURCE = Path(__file__).resolve().parent.parent
INPUTS = ("nodeagent", "systemd", "packaging", "LICENSE", "pyproject.toml", "uv.lock")
CHECKSUMS = "SHA256SUMS"
SCRATCH = ".build-"
LOCK = SOURCE / "packaging" / "interpreter.toml"


def main(arguments: list[str]) -> int:
    parser = common_parser(__file__, __doc__)
    parser.add_argument("--force", action="store_true", help="build even if nothing changed since the last time")
    options = parser.parse_args(arguments)
    try:
        build(options.out.resolve(), options.machine, options.interpreter, force=options.force)
    except BuildError as error:
        print(f"package: {error}", file=sys.stderr)
        return 1
    return 0


def common_parser(
    script: str, description: str | None, out: Path = SOURCE / "dist", origins: Sequence[str] = lock.ORIGINS
) -> argparse.ArgumentParser:
    """Return a parser with the options that all scripts have."""
    parser = argparse.ArgumentParser(prog=f"packaging/{Path(script).name}", description=description)
    parser.add_argument("--out", type=Path, default=out, help="directory for the results (%(default)s)")
    parser.add_argument("--machine", default=platform.machine(), help="as by uname: x86_64 or aarch64 (%(default)s)")
    text = f"origin of the interpreter: {' or '.join(lock.RELEASED)} (%(default)s)"
    parser.add_argument("--interpreter", choices=origins, default=lock.SOURCE, metavar="ORIGIN", help=text)
    return parser


def build(out: Path, machine: str = platform.machine(), origin: str = lock.SOURCE, *, force: bool = False) -> Path:
    """Write the package for `machine` to `out`, and return its tar. Raises BuildError, and leaves `out` as it was."""
    begun = time.monotonic()
    locked = lock.load(LOCK, machine, origin)
    version: str = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]["version"]
    name = Name(version, machine, testing=origin == lock.TESTING)
    tar = out / name.file(TAR)
    epoch = source_date_epoch()
    stamp = out / ".inputs"
    inputs = _inputs(epoch, machine, origin)
    if not force and stamp.is_file() and stamp.read_text() == inputs and _intact(out):
        tools.log(f"nothing changed; {out} is up to date")
        return tar
    parts = _parts(locked)
    out.mkdir(parents=True, exist_ok=True)
    with scratch_folder(out) as scratch:
        root, results = scratch / "root", scratch / "results"
        root.mkdir()
        results.mkdir()
        tree.assemble(SOURCE, version, parts, root)
        # Each of the two waits for a compressor in a process of its own.
        with ThreadPoolExecutor() as both:
            jobs = [
                both.submit(images.write_tar, root, results / tar.name, epoch, parts.compiler),
                both.submit(images.write_sysext, root, results / f"{NAME}.raw", epoch, name),
            ]
        for job in jobs:
            job.result()
        shutil.copy(SOURCE / "packaging" / "install.sh", results)
        shutil.copy(root / HOME[1:] / components.SBOM, results)
        sums = {path.name: _sha256(path) for path in sorted(results.iterdir())}
        (results / CHECKSUMS).write_text("".join(f"{value}  {file}\n" for file, value in sums.items()))
        for path in results.iterdir():
            path.replace(out / path.name)
    stamp.write_text(inputs)
    for file in sums:
        tools.log(f"{out / file} ({(out / file).stat().st_size / 1e6:.1f} MB)")
    tools.log(f"done in {time.monotonic() - begun:.1f} s")
    return tar


def _parts(locked: lock.InterpreterLock) -> tree.Parts:
    """Build interpreter and packages for the machine of `locked`, and those of this machine, which compile the code."""
    own = lock.load(LOCK, origin=locked.origin)
    native = interpreter.build(own)
    compiler = native / "bin" / "python3"
    same_packages = dependencies.build(SOURCE, own, native, compiler)
    if locked.machine == own.machine:
        return tree.Parts(locked, native, same_packages, compiler, same_packages)
    python = interpreter.build(locked, compiler)
    return tree.Parts(locked, python, dependencies.build(SOURCE, locked, python, compiler), compiler, same_packages)


@contextmanager
def scratch_folder(out: Path) -> Iterator[Path]:
    """Create a folder in `out` for this build. Those of killed builds are removed."""
    with ExitStack() as stack:
        # One build at a time removes old folders and creates and locks its own.
        with ExitStack() as begin:
            _lock(begin, out)
            for left in out.glob(f"{SCRATCH}*"):
                with ExitStack() as old, suppress(BlockingIOError):
                    _lock(old, left, fcntl.LOCK_NB)
                    shutil.rmtree(left)
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=SCRATCH, dir=out)))
            _lock(stack, scratch)
        yield scratch


def _lock(stack: ExitStack, folder: Path, flags: int = 0) -> None:
    """Lock a folder until `stack` is left, or the process ends in any way."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_EX | flags)


def source_date_epoch() -> int:
    """Return the time of every file: of the environment, else of the last commit, else the start of 1980."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    try:
        return int(tools.run(["git", "-C", SOURCE, "log", "-1", "--format=%ct"], timeout=10))
    except BuildError:
        return 315532800  # an exported source tree; zip files cannot hold less


def _inputs(epoch: int, machine: str, origin: str) -> str:
    # The program that writes the image is not locked, and its versions write different images.
    parts: list[bytes | str] = [
        str(epoch),
        machine,
        origin,
        tools.run([tools.require("sqfstar"), "-version"], timeout=10),
    ]
    for name in INPUTS:
        top = SOURCE / name
        for path in sorted([top, *top.rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                parts += [str(path.relative_to(SOURCE)), path.read_bytes()]
    return cache.digest(parts)


def _intact(out: Path) -> bool:
    if not (out / CHECKSUMS).is_file():
        return False
    lines = [line.split("  ", 1) for line in (out / CHECKSUMS).read_text().splitlines()]
    return all((out / name).is_file() and _sha256(out / name) == value for value, name in lines)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
