# SPDX-License-Identifier: Apache-2.0
"""``plan.py`` once more, with the interpreter and the libraries that hosts get: there, these make the plans.

Builds the package with the interpreter of tests, or takes what of it is up to date. Prints the JSON of ``plan.py``.

    python -m integration.bench.shipped [arguments of plan.py]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = """\
import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module("integration.bench.plan", run_name="__main__")
"""


def main() -> int:
    out = ROOT / "dist/testing"
    build = [sys.executable, str(ROOT / "packaging/build.py"), "--interpreter", "testing", "--out", str(out)]
    subprocess.run(build, check=True, stdout=sys.stderr)
    (tar,) = out.glob("nodeagent-*-testing.tar.gz")
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["tar", "--extract", "--file", str(tar), "--directory", directory], check=True)
        python = Path(directory, "usr/lib/nodeagent/bin/python3")
        return subprocess.run([python, "-c", RUN, str(ROOT), *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
