# SPDX-License-Identifier: Apache-2.0
"""Whether a server answers: any answer below 500 will do."""

from __future__ import annotations

import socket

import pytest

from nodeagent.core.self_check import CheckResult, NotRead, ReachFacts, reach_check
from nodeagent.host.reach import reach
from tests.host.test_http import answering


@pytest.mark.parametrize(
    ("status", "error"),
    [(200, ""), (302, ""), (401, ""), (404, ""), (499, ""), (500, "status 500"), (503, "status 503")],
)
async def test_an_answer(status: int, error: str) -> None:
    async with answering(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status) as url:
        # The authority is read for https alone.
        assert await reach("it", url, ca="/nonexistent/ca.crt") == ReachFacts("it", error)


async def test_no_answer() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        facts = await reach("it", f"http://127.0.0.1:{closed.getsockname()[1]}", remedy="of the authority")
    assert facts == ReachFacts("it", "Connection refused")


async def test_an_authority_that_cannot_be_read() -> None:
    facts = await reach("it", "https://127.0.0.1:9/", ca="/nonexistent/ca.crt", remedy="set another one")
    assert facts == ReachFacts("it", "the authority /nonexistent/ca.crt: No such file or directory", "set another one")


@pytest.mark.parametrize(
    ("facts", "result", "remedy"),
    [
        (ReachFacts("it"), CheckResult.OK, ""),
        (ReachFacts("it", "status 500"), CheckResult.FAILED, "check address, network and firewall"),
        (ReachFacts("it", "status 500", "set another one"), CheckResult.FAILED, "set another one"),
        (NotRead("not for this user"), CheckResult.SKIPPED, ""),
        (NotRead("it is damaged", "repair it", fault=True), CheckResult.FAILED, "repair it"),
    ],
)
def test_the_check(facts: ReachFacts | NotRead, result: CheckResult, remedy: str) -> None:
    check = reach_check("server", facts)
    assert (check.result, check.remedy) == (result, remedy)
