# SPDX-License-Identifier: Apache-2.0
"""Fuzz every target for an equal part of the time: ``python -m integration.fuzz [--seconds N] [NAME ...]``.

A failing input is kept in build/fuzz/NAME and printed, as an argument for ``--input``. The corpus of a target begins
with its seeds, and is removed afterwards.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from integration.fuzz.targets import TARGETS

OUT = Path("build/fuzz")
# Lines of the output of a target that failed.
SHOWN = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="integration.fuzz", description="fuzz what reads input from outside")
    parser.add_argument("--seconds", type=int, default=600, help="for all targets together (600)")
    parser.add_argument("--input", type=Path, help="run one target with this file instead")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TARGETS))
    args = parser.parse_args()
    names = args.names or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"no such target: {', '.join(unknown)}")
    if args.input is not None:
        for name in names:
            TARGETS[name].run(args.input.read_bytes())
        return 0
    if find_spec("atheris") is None:
        about = f"Python {platform.python_version()} on {platform.machine()}"
        print(f"fuzz: skipped, atheris is not installed; it has no wheel for every platform ({about})")
        return 1 if os.environ.get("CI") else 0
    seconds = max(1, args.seconds // len(names))
    failed = [name for name in names if not _fuzz(name, seconds)]
    print(f"fuzz: {len(names)} targets, {seconds} s each, failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _fuzz(name: str, seconds: int) -> bool:
    directory = OUT / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    command = [sys.executable, "-m", "integration.fuzz.one", name, str(seconds), str(directory)]
    log = directory / "log"
    with log.open("wb") as output:
        # atheris ends in time, but instruments the modules before, which takes a while on a busy machine.
        limit = seconds + 600
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=limit, check=False).returncode
    text = log.read_text(errors="replace")
    shutil.rmtree(directory / "corpus", ignore_errors=True)
    done = next((line for line in reversed(text.splitlines()) if line.startswith("Done ")), "")
    print(f"fuzz: {name}: {done or f'ended with {code}'}", flush=True)
    if code == 0:
        return True
    print("\n".join(text.splitlines()[-SHOWN:]))
    for found in sorted(directory.glob("*-*")):
        print(f"fuzz: {found}: {found.read_bytes()!r}")
        print(f"fuzz: again with: python -m integration.fuzz --input {found} {name}")
    return False


if __name__ == "__main__":
    raise SystemExit(main())
