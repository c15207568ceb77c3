"""What is imported where: the heavy parts only by those who use them."""

from __future__ import annotations

import subprocess
import sys

DAEMON = """\
import sys
import nodeagent.agent.daemon
late = ("nodeagent.kube.client", "kubernetes", "aiohttp")
print(sorted(name for name in sys.modules if name.startswith(late)))
"""


def test_a_daemon_without_a_cluster_does_not_import_its_client() -> None:
    done = subprocess.run([sys.executable, "-c", DAEMON], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "[]\n"
