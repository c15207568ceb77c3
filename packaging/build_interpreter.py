# SPDX-License-Identifier: Apache-2.0
"""Build the interpreter of releases from Debian's source packages: `python packaging/build_interpreter.py`.

It is written to the cache, where builds of the package find it. With --twice it is built again, by one compiler at a
time and outside of the cache, and both results are compared byte by byte.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from pathlib import Path

import build as package
from bundle import cache, lock, tools
from bundle.errors import BuildError
from bundle.origins import source


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="packaging/build_interpreter.py", description=__doc__)
    parser.add_argument("--twice", action="store_true", help="build it again, and compare")
    parser.add_argument("--cached", action="store_true", help="build nothing; exit status 1 if it is not in the cache")
    options = parser.parse_args(arguments)
    try:
        if options.cached:
            return 0 if source.built(lock.load(package.LOCK)) else 1
        build(twice=options.twice)
    except BuildError as error:
        print(f"interpreter: {error}", file=sys.stderr)
        return 1
    return 0


def build(*, twice: bool) -> None:
    """Build the interpreter for this machine, unless it is in the cache. Raises BuildError."""
    locked = lock.load(package.LOCK, platform.machine(), lock.SOURCE)
    built = source.build(locked)
    size = sum(path.stat().st_size for path in built.rglob("*") if path.is_file())
    tools.log(f"CPython {locked.python} is in {built} ({size / 1e6:.1f} MB before files that are not used are removed)")
    tools.log(f"built by {', '.join((built / source.COMPILER).read_text().splitlines())}")
    if twice:
        # On the disk of the cache: a build needs a gigabyte.
        with tempfile.TemporaryDirectory(prefix=".again-", dir=cache.root()) as again:
            source.make(locked, Path(again), jobs=1)
            if different := source.compare(built, Path(again)):
                raise BuildError(f"two builds differ in {', '.join(different[:20])}")
        tools.log("built twice, with the same bytes")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
