# SPDX-License-Identifier: Apache-2.0
"""A private bus for each test that asks for one."""

from __future__ import annotations

import gc
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from nodeagent.host.dbus.client import Bus
from tests.support.needs import missing

CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
    <allow own="*"/>
    <deny own="org.nodeagent.test.Forbidden"/>
  </policy>
</busconfig>
"""


class PrivateBus:
    """A dbus-daemon of our own that can be stopped and started again on the same address, from any thread."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "bus"
        self.address = f"unix:path={self.socket}"
        self._config = directory / "bus.conf"
        self._config.write_text(CONFIG.format(socket=self.socket))
        self._process: subprocess.Popen[str] | None = None
        # A command may end as soon as the bus is lost, while a thread of the test still reaps it.
        self._lock = threading.Lock()

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["dbus-daemon", f"--config-file={self._config}", "--nofork", "--nopidfile", "--print-address=1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it grumbles about limits that only root may raise
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("unix:")

    def stop(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.communicate()
                self._process = None
            self.socket.unlink(missing_ok=True)


@pytest.fixture
def private_bus(tmp_path: Path) -> Iterator[PrivateBus]:
    if message := missing("dbus-daemon"):
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    bus = PrivateBus(tmp_path)
    bus.start()
    yield bus
    bus.stop()


@pytest.fixture
async def bus(private_bus: PrivateBus) -> AsyncIterator[Bus]:
    async with Bus(private_bus.address, connect_for=2, patience=20) as bus:
        yield bus


@pytest.fixture
async def no_leaked_fds() -> AsyncIterator[None]:
    """Check that this process has no more descriptors after the test than before. (Fewer it may have:
    the garbage of an earlier test may go during this one.)"""
    gc.collect()
    gc.freeze()  # what is left after thousands of tests is not searched again
    before = len(os.listdir("/proc/self/fd"))
    yield
    after = len(os.listdir("/proc/self/fd"))
    assert after <= before, f"descriptors: {before} before, {after} after: {_open_files()}"


def _open_files() -> list[str]:
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(f"{fd}: {os.readlink(f'/proc/self/fd/{fd}')}")
        except OSError:
            continue
    return links
