# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.quick``: ruff and mypy beside the tests of ring 1 that are nearest to what changed since main."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tests.quick.choice import changed_files, choose

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
MOST = 20
"""Test files, which are all imported before the first test begins."""
CHECKS = (("ruff", "format", "--check", "-q", "."), ("ruff", "check", "-q", "."), ("mypy",))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.quick", description=__doc__)
    parser.add_argument("--since", default="main", help="branch to compare with (default: main)")
    parser.add_argument("--seconds", default="15", help="begin no test later than this after the first (default: 15)")
    options = parser.parse_args()
    begun = time.monotonic()
    changed = changed_files(ROOT, options.since)
    near = choose(ROOT, changed)
    tests = [str(test.relative_to(ROOT)) for test in near[:MOST]]
    print(
        f"make quick: {len(changed)} changed files since {options.since}, the nearest {len(tests)} files of tests",
        flush=True,
    )
    checks = [subprocess.Popen([BIN / name, *arguments], cwd=ROOT) for name, *arguments in CHECKS]
    failed = False
    if tests:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests.quick.limit",
            "--seconds",
            options.seconds,
            *tests,
        ]
        failed = subprocess.run(command, cwd=ROOT, check=False).returncode != 0
    codes = [check.wait() for check in checks]
    failed |= any(codes)
    print(f"make quick: {'failed' if failed else 'clean'} after {time.monotonic() - begun:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
