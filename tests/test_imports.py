# SPDX-License-Identifier: Apache-2.0
"""What is imported where: at the top of a module, but for what is left out on purpose."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support import examples

PACKAGE: Final = Path(__file__).parents[1] / "nodeagent"
MOST: Final = 30

# ctypes needs a page of memory that can be executed. A confined domain may not have it, and the daemon starts anyway.
EXECUTABLE: Final = "needs executable memory"
# Half a second and 75 MB of files, for hosts of a cluster only.
CLIENT: Final = "the client of the API server"

LATER: Final = {
    ("agent/compose.py", "nodeagent.kube.client"): CLIENT,
    ("agent/compose.py", "nodeagent.kube.credentials"): CLIENT,
    ("cli/_client.py", "nodeagent.cli._offline"): "the store and the settings, for a command without a daemon",
    ("cli/_offline.py", "nodeagent.agent.offline"): "the daemon's planner, for a plan without a daemon",
    ("cli/plan.py", "nodeagent.cli._settings"): "the settings, for a plan between configs whose sections differ",
    ("host/c_library.py", "ctypes"): EXECUTABLE,
    ("host/fs/selinux.py", "ctypes"): EXECUTABLE,
    ("host/inotify.py", "ctypes"): EXECUTABLE,
    ("kube/_import.py", "aiohttp"): CLIENT,
    ("kube/_import.py", "kubernetes.aio.client"): CLIENT,
    ("kube/_import.py", "kubernetes.aio.client.rest"): CLIENT,
    ("kube/_import.py", "kubernetes.aio.config"): CLIENT,
    ("kube/_import.py", "kubernetes.aio.config.incluster_config"): CLIENT,
    **examples.joined("LATER"),
}

# Without colorama, as in the packages: structlog imports it, and that ctypes, where it is installed.
DAEMON: Final = """\
import sys
sys.modules["colorama"] = None
import nodeagent.agent.daemon
late = ("nodeagent.kube.client", "nodeagent.features.fence.fence", "kubernetes", "aiohttp", "ctypes")
print(sorted(name for name in sys.modules if name.startswith(late)))
"""


def _inside_functions() -> set[tuple[str, str]]:
    """Return the files and the modules that they import inside of a function."""
    found: set[tuple[str, str]] = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if path.match("features/*/door.py"):
            # A door declares; what its feature needs is imported when the daemon opens it.
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Import):
                        found |= {(name, alias.name) for alias in node.names}
                    elif isinstance(node, ast.ImportFrom):
                        found.add((name, node.module or ""))
    return found


def test_modules_import_at_their_top() -> None:
    assert _inside_functions() == set(LATER), (
        "import at the top of the module. An import that hosts without it must not pay for, or must not fail at, is a "
        "line of LATER with that reason"
    )
    assert len(LATER) <= MOST, "an import inside a function hides what a module needs: find one that can go to the top"


def test_what_the_daemon_does_not_import_at_its_start() -> None:
    done = subprocess.run([sys.executable, "-c", DAEMON], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "[]\n", (
        "each of these costs every host time and memory at the start: import it where it is used"
    )
