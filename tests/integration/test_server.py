# SPDX-License-Identifier: Apache-2.0
"""The programs that ring 3 starts."""

from __future__ import annotations

import threading
from pathlib import Path

from integration.cluster.server import Server


def test_a_server_outlives_the_thread_of_its_caller(tmp_path: Path) -> None:
    server = Server("sleeper", ["sleep", "1000"], tmp_path / "log", lambda: True)
    caller = threading.Thread(target=server.start)
    caller.start()
    caller.join()
    # As long as it takes until the kernel has sent the signal of the parent's death.
    until = threading.Event()
    assert not until.wait(0.5)
    assert server.alive
    server.kill()
