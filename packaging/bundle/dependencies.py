# SPDX-License-Identifier: Apache-2.0
"""Fetch the packages of uv.lock as wheels for the bundled interpreter."""

from __future__ import annotations

import shutil
from pathlib import Path

from bundle import bytecode, cache, fetch, tools
from bundle.elf import Elf
from bundle.lock import InterpreterLock
from bundle.origins.base import HOME

EXPORT_TIMEOUT = 60.0  # seconds

# Requirements of the Kubernetes client that nodeagent/kube/_import.py does not import: 20 MB.
NOT_SHIPPED = (
    *("annotated-types", "certifi", "charset-normalizer", "durationpy", "oauthlib", "pydantic", "pydantic-core"),
    *("python-dateutil", "requests", "requests-oauthlib", "six", "typing-inspection", "tzdata", "urllib3"),
    "websocket-client",
)

# The parts of the client that are used, without the models of all objects of Kubernetes: 1 MB of 76.
KUBERNETES = "kubernetes"
SHIPPED_OF_KUBERNETES = (
    *("__init__.py", "aio/__init__.py", "aio/client/*.py", "aio/config/*.py"),
    *("aio/utils/__init__.py", "aio/utils/retry.py", "aio/utils/_retry_base.py"),
)

# Needs libstdc++, which a bare host does not have. Without this file the package uses its Python code.
NOT_FOR_BARE_HOSTS = ("frozenlist/_frozenlist.*.so",)

# The HTTP server of aiohttp: nodeagent uses the client.
UNUSED_OF_AIOHTTP = ("web.py", "web_*.py", "worker.py", "test_utils.py", "pytest_plugin.py")

# Files of wheels for builds and type checks, and those of pip for an uninstallation.
UNUSED = (
    *("*.pyi", "*.pyx", "*.pxd", "*.pxi", "*.c", "*.h", "*_test.py", "py.typed"),
    *(".lock", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json"),
)
UNUSED_FOLDERS = ("bin", "tests", "__pycache__")


def build(source: Path, lock: InterpreterLock, interpreter: Path, compiler: Path) -> Path:
    """Return the cached site-packages for the lock file in `source`. It must not be changed.

    `interpreter` is the home of the one that will run them, `compiler` one that runs on this machine.
    """
    requirements = _export(source)
    own = [Path(__file__).with_name(f"{name}.py").read_bytes() for name in ("dependencies", "elf")]
    key = cache.digest([requirements, *own, interpreter.parent.name])
    return cache.directory("packages", key, lambda to: _make(requirements, lock, compiler, to))


def on_host(lock: InterpreterLock) -> str:
    """Return the path of site-packages on a host."""
    return f"{HOME}/lib/python{lock.short}/site-packages"


def _export(source: Path) -> str:
    command = [tools.uv(), "export", "--quiet", "--frozen", "--no-dev", "--all-extras", "--no-emit-project"]
    command += ["--no-header", "--no-annotate", "--format", "requirements-txt", "--project", str(source)]
    for name in NOT_SHIPPED:
        command += ["--no-emit-package", name]
    return tools.run(command, timeout=EXPORT_TIMEOUT).decode()


def _make(requirements: str, lock: InterpreterLock, compiler: Path, target: Path) -> None:
    tools.log("fetching the packages of uv.lock")
    fetch.wheels(requirements, target, python=lock.python, platform=lock.wheels)
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_dir() and path.name in UNUSED_FOLDERS:
            shutil.rmtree(path)
        elif path.is_file() and any(path.match(each) for each in UNUSED + NOT_FOR_BARE_HOSTS):
            path.unlink()
        elif path.suffix == ".so" and (elf := Elf.read(path)):
            elf.strip()
            path.write_bytes(elf.data)
    for each in UNUSED_OF_AIOHTTP:
        for path in (target / "aiohttp").glob(each):
            path.unlink()
    _trim(target / KUBERNETES)
    bytecode.compile_tree(compiler, target, on_host(lock))


def _trim(client: Path) -> None:
    shipped = {path for each in SHIPPED_OF_KUBERNETES for path in client.glob(each)}
    for path in sorted(client.rglob("*"), reverse=True):
        if path.is_file() and path not in shipped:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
