"""Parts of a package without the rest: what is imported, and what others find afterwards."""

from __future__ import annotations

import subprocess
import sys

from nodeagent._partial_import import without_init

PROGRAM = """\
import sys
from nodeagent.host.dbus import codec
from nodeagent import log
assert "structlog" not in sys.modules and "dbus_next" not in sys.modules
assert not {"structlog.dev", "dbus_next.aio", "dbus_next.glib"} & set(sys.modules)
import dbus_next, structlog
assert dbus_next.Variant is type(codec.variant("s", "x"))
assert issubclass(log.Logger, structlog.BoundLoggerBase)
"""


DAEMON = """\
import sys
import nodeagent.agent.daemon
late = ("nodeagent.host.fence.", "nodeagent.kube.", "kubernetes", "pyudev", "http.client")
print(sorted(name for name in sys.modules if name.startswith(late)))
"""


def test_what_the_daemon_does_not_import_at_its_start() -> None:
    done = subprocess.run([sys.executable, "-c", DAEMON], check=True, timeout=30, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_what_the_daemon_imports_of_its_libraries() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=30)


def test_a_package_that_is_there_stays() -> None:
    whole = sys.modules["pytest"]
    with without_init("pytest"):
        assert sys.modules["pytest"] is whole
    assert sys.modules["pytest"] is whole


def test_a_package_that_is_not_installed() -> None:
    with without_init("no_such_package"):
        assert "no_such_package" not in sys.modules
