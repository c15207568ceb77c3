"""Every version with a store in tests/stores: from it to this one and back, in the middle of an update.

The older package is built from the commit that added its stores, with the build of that commit.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from integration.cluster.cluster import LEASE_PATH, Cluster
from integration.cluster.tcp_proxy import INSIDE, listen_inside, relay
from integration.cluster.test_installed import KUBECONFIG, kubeconfig
from integration.hosts import nodeagent_client as agent
from integration.hosts import process
from integration.hosts.container import events
from integration.hosts.container.configs import HOLD, SLOW
from integration.hosts.container.conftest import (
    BUILD_TIMEOUT,
    EPOCH,
    HostMaker,
    agent_image,
    image,
    make_host,
    make_node,
    package,
    pytest_runtest_makereport,
    required,
    say,
)
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import cache_directory
from integration.hosts.container.package import install
from integration.hosts.errors import CommandFailed, Unavailable
from integration.hosts.nodeagent_client import machine_config, outcomes, wait_done, wait_phase

__all__ = ["agent_image", "image", "make_host", "make_node", "package", "pytest_runtest_makereport", "say"]

pytestmark = [pytest.mark.slow, pytest.mark.long]

ROOT: Final = Path(__file__).parents[3]
STORES: Final = ROOT / "tests/stores"
VERSIONS: Final = sorted(path.parent.name for path in STORES.glob("*/manifest.json"))
POLICY: Final = agent.policy(files={"/etc/slow.conf": ["Restart slow.service"], "/etc/many": ["None"]})


@pytest.fixture(params=VERSIONS)
def older(request: pytest.FixtureRequest, say: Callable[[str], None]) -> Path:
    return required(lambda: built(request.param, say))


def built(version: str, say: Callable[[str], None]) -> Path:
    """Return the tar of an older version, from the cache of the packages."""
    manifest = f"tests/stores/{version}/manifest.json"
    log = ["git", "-C", str(ROOT), "log", "--diff-filter=A", "--format=%H", "--", manifest]
    try:
        commit = process.run(log, timeout=60).stdout.decode().split()[-1]
    except (CommandFailed, IndexError):
        raise Unavailable(f"no commit that added {manifest}: the history is needed") from None
    out = cache_directory() / "older" / commit
    out.mkdir(parents=True, exist_ok=True)
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (done := sorted(out.glob("dist/nodeagent-*.tar.gz"))):
            say(f"building nodeagent {version} from {commit[:9]}: a minute, once")
            shutil.rmtree(source := out / "source", ignore_errors=True)
            source.mkdir()
            tar = process.run(["git", "-C", str(ROOT), "archive", commit], timeout=60).stdout
            process.run(["tar", "--extract", "--directory", str(source)], stdin=tar, timeout=60)
            command = [sys.executable, str(source / "packaging/build.py"), "--out", str(out / "new")]
            environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
            subprocess.run(command, check=True, timeout=BUILD_TIMEOUT, capture_output=True, env=environment)
            shutil.rmtree(source)
            (out / "new").rename(out / "dist")
            done = sorted(out.glob("dist/nodeagent-*.tar.gz"))
    return done[0]


@pytest.mark.timeout(900)
def test_there_and_back_in_the_middle_of_updates(make_node: HostMaker, package: Path, older: Path) -> None:
    files = {agent.POLICY: POLICY, "/etc/systemd/system/slow.service": SLOW}
    host = make_node(files=files, settings={"actions": {"timeout": 60, "settle": 1.5}})
    # At rest, with an empty store of this version.
    install(host, older)
    agent.wait_daemon(host)
    update(host, "upgraded", package)
    update(host, "downgraded", older)
    update(host, "upgraded-again", package)
    ended = [("upgraded", "done"), ("downgraded", "done"), ("upgraded-again", "done")]
    assert outcomes(host) == ended
    for tar in (older, package):
        install(host, tar)
        agent.wait_daemon(host)
        assert agent.status(host)["current"] == "upgraded-again"
        assert outcomes(host) == ended
    host.run(["nodeagent", "verify"])
    host.run(["systemctl", "stop", agent.UNIT])
    with closing(sqlite3.connect(f"file:{host.root}{agent.STORE}?mode=ro", uri=True)) as store:
        assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def update(host: Host, name: str, tar: Path) -> None:
    """Apply a config with the version that runs, and install another one while a restart is under way."""
    many = {f"/etc/many/{number:03}": f"{name} {number}\n" * 20 for number in range(50)}
    host.write(HOLD, "")
    agent.apply(host, machine_config(name, files={**many, "/etc/slow.conf": name}))
    wait_phase(host, "Acting")
    install(host, tar)
    host.run(["rm", "--force", HOLD])
    status = wait_done(host, name)
    assert (status["lease"], status["step"], host.reboots) == (None, None, 0)
    assert [path for path, text in many.items() if (host.root / path[1:]).read_text() != text] == []
    assert host.events("slow.service")[-1].digest == events.digest(name.encode())
    assert host.is_active("slow.service")


@pytest.fixture
def reachable(installed: Cluster, tmp_path: Path) -> Iterator[Path]:
    with relay(tmp_path, installed.port):
        yield tmp_path


@pytest.mark.timeout(900)
def test_under_the_lease_of_its_node(
    installed: Cluster, reachable: Path, make_node: HostMaker, package: Path, older: Path
) -> None:
    """The commands of docs/usage/upgrade.md: a maintenance keeps the node through the restarts of both versions."""
    name = "replaced"
    installed.node(name)
    host: Host = make_node(
        settings={"node_name": name, "cluster": {"kubeconfig": KUBECONFIG}},
        files={KUBECONFIG: kubeconfig(installed, name), agent.POLICY: agent.policy(files={"/etc/one": ["None"]})},
        read_only={INSIDE: reachable},
        boot=False,
    )
    listen_inside(host, installed.port)
    host.boot()
    agent.wait_daemon(host)
    host.run(["nodeagent", "maintenance", "start", "--reason", "nodeagent", "--for", "1h", "--wait"])
    lease = f"{LEASE_PATH}/node-{name}"
    taken = installed.admin.get(lease)
    agent.apply(host, machine_config("waits", files={"/etc/one": "1"}))
    wait_phase(host, "Leasing")
    for tar in (older, package):
        install(host, tar)
        agent.wait_daemon(host)
        wait_phase(host, "Leasing")
        assert installed.admin.get(lease)["metadata"]["uid"] == taken["metadata"]["uid"]
        assert installed.admin.get(lease)["spec"]["acquireTime"] == taken["spec"]["acquireTime"]
    assert not host.exists("/etc/one")
    host.run(["nodeagent", "maintenance", "stop"])
    wait_done(host, "waits")
    host.wait_for(lambda: installed.admin.find(lease) is None or None, "the lease is released", 180)
