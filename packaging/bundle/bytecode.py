"""Bytecode made ahead of time: /usr is read-only on the hosts, and compiling costs more than everything else at start.

Unchecked hash files are never compared with their source, so a start does not depend on times that an image changed.
"""

from __future__ import annotations

from pathlib import Path

from bundle import tools

COMPILE_TIMEOUT = 300.0  # seconds for a standard library


def compile_tree(python: Path, folder: Path, on_host: str) -> None:
    """Compile everything in `folder`, which is `on_host` (a path) on a host, with the `python` that will run it."""
    # A fixed hash seed: the order of set constants is part of the bytes. One process: so is what it interned before.
    command: list[str | Path] = [python, "-S", "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", folder, "-p", on_host, folder]
    tools.run(command, timeout=COMPILE_TIMEOUT, env={"PYTHONHASHSEED": "0"})


def compile_dataclasses(python: Path, site: Path) -> None:
    """Add to the nodeagent in `site` what its dataclasses generate at a start (`nodeagent/ahead.py`)."""
    command: list[str | Path] = [python, "-BPS", "-m", "nodeagent.ahead", site / "nodeagent" / "ahead.marshal"]
    tools.run(command, timeout=COMPILE_TIMEOUT, env={"PYTHONHASHSEED": "0", "PYTHONPATH": str(site)})
