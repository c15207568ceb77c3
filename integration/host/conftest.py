"""Fixtures of the host ring: the image once, a fresh host for every test that asks for one (it boots in a second).

Where hosts cannot be booted the ring is skipped with the reason; with CI set in the environment that is a failure.
The logs of a host are kept when its test fails, and the report says where.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from integration.host import machine
from integration.host.errors import Unavailable
from integration.host.image import Image, base_image
from integration.host.machine import Host

HERE = Path(__file__).parent
FAILED = pytest.StashKey[bool]()
HostMaker = Callable[..., Host]


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


def unavailable(error: Unavailable) -> NoReturn:
    """Skip with the reason, or fail where a skip would hide that nothing was proven."""
    reason = f"the host ring cannot run here: {error}"
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
    try:
        built = base_image(say)
    except Unavailable as error:
        unavailable(error)
    machine.sweep()
    yield built
    built.close()


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
