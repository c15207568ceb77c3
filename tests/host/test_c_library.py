# SPDX-License-Identifier: Apache-2.0
"""C libraries where the process may not have executable memory, as in a confined SELinux domain."""

from __future__ import annotations

import builtins
import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nodeagent.host import inotify
from nodeagent.host.c_library import c_library

# What the daemon imports before it does anything.
# Without colorama, as in the packages: structlog imports it, and that ctypes, where it is installed.
START = """
import sys
sys.modules["colorama"] = None
import nodeagent.agent.compose, nodeagent.cli.daemon
print("ctypes" in sys.modules)
"""


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refusing(name: str, *rest: Any, **options: Any) -> Any:
        if name == "ctypes":
            raise MemoryError
        return real(name, *rest, **options)

    c_library.cache_clear()
    monkeypatch.setattr(builtins, "__import__", refusing)


@pytest.mark.usefixtures("no_memory")
def test_an_import_that_gets_no_memory_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="no executable memory") as raised:
        c_library()
    assert raised.value.errno == errno.EACCES


@pytest.mark.usefixtures("no_memory")
def test_a_watch_fails_as_without_a_free_instance(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no executable memory"):
        inotify.Watch(str(tmp_path))


def test_it_is_loaded_once() -> None:
    assert c_library() is c_library()


def test_the_daemon_starts_without_ctypes() -> None:
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"
