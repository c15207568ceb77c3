# SPDX-License-Identifier: Apache-2.0
"""Debian's Cockpit in a cached image, with nodeagent's page, as a session on a private bus.

The web server, the bridge and cockpit.js are the real ones. The session is one without a log-in, as root or as a user.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from integration.browser.browser import image_with
from integration.hosts import process
from integration.hosts.container import container_host
from integration.hosts.container.image import Image
from integration.hosts.errors import HostRingError
from integration.hosts.requirements import Say
from integration.trees.base import CHROOT_ENV, chrooted
from integration.trees.toolbox import scratch

PACKAGES: Final = ("cockpit-ws", "cockpit-bridge", "cockpit-system")
PAGE: Final = Path(__file__).parents[2] / "packaging" / "cockpit"
# The page without the shell around it.
ALONE: Final = "/cockpit/@localhost/nodeagent/index.html"
# Seconds for the start of the web server.
START: Final = 30.0
USER: Final = "core"
_SERVER: Final = "/usr/lib/cockpit/cockpit-ws"
_BRIDGE: Final = "/usr/bin/cockpit-bridge"
_BUS: Final = "run/private-bus"


def cockpit_image(say: Say) -> Image:
    """Raises Unavailable where no image can be made."""

    return image_with("cockpit", PACKAGES, say, "installing Cockpit for the tests of its page, half a minute, once")


@contextmanager
def unpacked(say: Say) -> Iterator[Path]:
    """Yield a root directory with Cockpit and the page. Raises Unavailable where none can be made."""
    container_host.sweep()
    with closing(cockpit_image(say)) as image, scratch(image) as root:
        shutil.copytree(PAGE, root / "usr/share/cockpit/nodeagent")
        # The page is listed only where nodeagent is installed.
        (root / "usr/bin/nodeagent").touch()
        with chrooted(root):
            yield root


@contextmanager
def session(root: Path, bus: Path, *, admin: bool) -> Iterator[str]:
    """Yield the address of a web server with a session on the bus in the directory ``bus``.

    The session is that of root, whose rights are administrative, or of a user without any.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = [_SERVER, "--no-tls", "--address=127.0.0.1", f"--port={port}", f"--local-session={_BRIDGE}"]
    user = "root" if admin else USER
    argv = ["chroot", f"--userspec={user}:{user}", str(root), *server]
    with ExitStack() as stack:
        (root / _BUS).mkdir()
        stack.callback((root / _BUS).rmdir)
        process.run(["mount", "--bind", str(bus), str(root / _BUS)], timeout=10)
        stack.callback(process.run, ["umount", "--lazy", str(root / _BUS)], timeout=10)
        log = stack.enter_context(tempfile.TemporaryFile())
        running = stack.enter_context(subprocess.Popen(argv, env=_environment(user), stdout=log, stderr=log))
        stack.callback(running.terminate)
        _wait_for(running, port)
        yield f"http://127.0.0.1:{port}"


def listed(root: Path) -> str:
    """Return the list of Cockpit's pages, one per line with its title and directory."""
    done = process.run(["chroot", str(root), _BRIDGE, "--packages"], timeout=30, env=_environment("root"))
    return done.stdout.decode()


def _environment(user: str) -> Mapping[str, str]:
    home = "/root" if user == "root" else f"/var/home/{user}"
    return {**CHROOT_ENV, "HOME": home, "USER": user, "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path=/{_BUS}/bus"}


def _wait_for(running: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + START
    while running.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise HostRingError(f"cockpit-ws does not listen (exit status {running.poll()})")
