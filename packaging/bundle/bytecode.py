# SPDX-License-Identifier: Apache-2.0
"""Compile the packaged Python code when the package is built.

/usr is read-only on the hosts, and compiling takes longer than everything else at start. Python never compares
unchecked hash files with their source, so modification times that an image build changed do not matter.
"""

from __future__ import annotations

from pathlib import Path

from bundle import tools

COMPILE_TIMEOUT = 300.0  # seconds for a standard library


def compile_tree(python: Path, folder: Path, on_host: str) -> None:
    """Compile `folder` with the `python` that will run it. `on_host` is the path of the folder on a host."""
    # The bytes depend on the order of set constants, and so on the hash seed, and on the strings that the process
    # interned before. A fixed seed and a single process make them reproducible.
    command: list[str | Path] = [python, "-S", "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", folder, "-p", on_host, folder]
    tools.run(command, timeout=COMPILE_TIMEOUT, env={"PYTHONHASHSEED": "0"})
