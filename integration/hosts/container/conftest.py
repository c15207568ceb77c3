# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the host ring: the image once, a fresh host for every test that asks for one (it boots in a second).

Where hosts cannot be booted the ring is skipped with the reason; with CI set in the environment that is a failure.
The logs of a host are kept when its test fails, and the report says where.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container import container_host
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import Image, base_image, cache_directory
from integration.hosts.container.package import installed_image
from integration.hosts.errors import Unavailable

HERE = Path(__file__).parent
T = TypeVar("T")
FAILED = pytest.StashKey[bool]()
HostMaker = Callable[..., Host]
BUILD = HERE.parents[2] / "packaging" / "build.py"
BUILD_TIMEOUT = 1200.0  # seconds; the first build on a machine fetches 150 MB
EPOCH = "1700000000"  # a new commit alone makes no new package


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.host)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


def required(find: Callable[[], T], without: str = "the host ring cannot run here") -> T:
    """Return what ``find`` returns. If this machine does not have it, skip the test with the reason."""
    try:
        return find()
    except Unavailable as error:
        unavailable(error, without)


def unavailable(error: Unavailable, without: str = "the host ring cannot run here") -> NoReturn:
    """Skip with the reason, or fail where a skip would hide that nothing was proven."""
    reason = f"{without}: {error}"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Tell the person in front of the terminal, past pytest's capture: an image may take half a minute."""
    reporter: Any = request.config.pluginmanager.get_plugin("terminalreporter")

    def line(text: str) -> None:
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"host ring: {text}")

    return line


@pytest.fixture(scope="session")
def image(say: Callable[[str], None]) -> Iterator[Image]:
    built = required(lambda: base_image(say))
    container_host.sweep()
    yield built
    built.close()


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]) -> Path:
    """The package's tar, built from the sources as they are unless that was done before."""
    return built_package(tmp_path_factory.mktemp("package"), say)


def built_package(directory: Path, say: Callable[[str], None], machine: str | None = None) -> Path:
    """Return a copy in ``directory`` of the package for this machine, or for another architecture."""
    out = cache_directory() / ("dist" if machine is None else f"dist-{machine}")
    out.mkdir(parents=True, exist_ok=True)
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        say(f"building the package{'' if machine is None else f' for {machine}'}, unless nothing changed")
        done = subprocess.run(
            [
                sys.executable,
                BUILD,
                "--interpreter",
                "testing",
                "--out",
                out,
                *(() if machine is None else ("--machine", machine)),
            ],
            env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT,
            check=False,
        )
        if done.returncode != 0 and "missing: " in done.stderr:
            unavailable(Unavailable(done.stderr.strip()))
        assert done.returncode == 0, done.stderr
        (newest,) = sorted(out.glob("nodeagent-*-testing.tar.gz"), key=lambda path: path.stat().st_mtime)[-1:]
        return Path(shutil.copy(newest, directory))


@pytest.fixture(scope="session")
def agent_image(image: Image, package: Path) -> Iterator[Image]:
    """The base image with the package installed and the agent's unit enabled."""
    derived = installed_image(image, package)
    yield derived
    derived.layers[-1].lock.close()


@pytest.fixture
def make_host(request: pytest.FixtureRequest, image: Image) -> Iterator[HostMaker]:
    """Makes hosts, off, with any arguments of Host (and another image); all are closed after the test."""
    hosts: list[Host] = []

    def make(other: Image | None = None, **options: Any) -> Host:
        hosts.append(Host(other or image, **options))
        return hosts[-1]

    yield make
    for host in hosts:
        finish(host, request.node)


@pytest.fixture
def host(make_host: HostMaker) -> Host:
    """A host without nodeagent, fresh and booted."""
    fresh = make_host()
    fresh.boot()
    return fresh


@pytest.fixture
def make_node(make_host: HostMaker, agent_image: Image) -> HostMaker:
    """Makes hosts with the agent installed, up and at rest unless `boot` is false.

    `settings` go over agent.FAST; `files` (path to text) are there before the first boot; the rest goes to Host.
    """

    def make(
        *,
        settings: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
        boot: bool = True,
        **options: Any,
    ) -> Host:
        host = make_host(agent_image, **options)
        agent.settings(host, settings)
        for path, text in (files or {}).items():
            host.write(path, text)
        if boot:
            host.boot()
            agent.wait_daemon(host)
        return host

    return make


@pytest.fixture
def node(make_node: HostMaker) -> Host:
    """A host with the agent up and at rest, which has never seen a config."""
    return make_node()


def finish(host: Host, node: pytest.Item) -> None:
    """Close a host, keeping its logs if the test failed."""
    try:
        if node.stash.get(FAILED, False):
            test = re.sub(r"[^\w.-]+", "_", node.name)
            kept = host.keep_logs(Path(tempfile.gettempdir()) / "nodeagent-host-logs" / f"{test}-{host.name}")
            node.add_report_section("teardown", "host logs", f"kept in {kept}")
            reporter: Any = node.config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                reporter.write_line(f"logs of host {host.name}: {kept}")
    finally:
        host.close()
