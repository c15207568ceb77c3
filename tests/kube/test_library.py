# SPDX-License-Identifier: Apache-2.0
"""The imported part of the official client is the part that the package ships; other importers get all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nodeagent.kube._import import _without_init

PACKAGING = Path(__file__).parents[2] / "packaging"
PROGRAM = """\
import sys
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

from nodeagent.kube._import import _without_init
from nodeagent.kube import _import
found = _import.load()
assert _import.load() is found
tops = {name.split(".")[0] for name in sys.modules}
sys.path.append(sys.argv[1])
from bundle.dependencies import NOT_SHIPPED, SHIPPED_OF_KUBERNETES
root = Path(sys.modules["kubernetes.aio.client"].__file__).parents[2]
shipped = {str(path) for each in SHIPPED_OF_KUBERNETES for path in root.glob(each)}
ours = {m.__file__ for name, m in sys.modules.items() if name.startswith("kubernetes.")}
assert ours <= shipped, ours - shipped
left_out = set(NOT_SHIPPED)
dragged = {d for top, ds in packages_distributions().items() if top in tops for d in ds if d in left_out}
assert not dragged, dragged
import kubernetes.aio
assert kubernetes.aio.client.ApiClient.__module__ == "kubernetes.aio.client.api_client"
assert kubernetes.aio.client.Configuration is found.Configuration
"""


def test_what_is_imported_is_what_is_shipped() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, PACKAGING], check=True, timeout=60)


TOGETHER = """\
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from nodeagent.kube import _import
sys.setswitchinterval(1e-5)
ready = Barrier(8)
def load(_):
    ready.wait()
    return _import.load()
with ThreadPoolExecutor(8) as threads:
    found = list(threads.map(load, range(8)))
assert all(each is found[0] for each in found)
assert "kubernetes.aio" not in sys.modules
"""


def test_clients_that_connect_at_once_share_it() -> None:
    subprocess.run([sys.executable, "-c", TOGETHER], check=True, timeout=60)


def test_a_package_that_is_there_stays() -> None:
    whole = sys.modules["pytest"]
    with _without_init("pytest"):
        assert sys.modules["pytest"] is whole
    assert sys.modules["pytest"] is whole


def test_a_package_that_is_not_installed() -> None:
    with _without_init("no_such_package"):
        assert "no_such_package" not in sys.modules
