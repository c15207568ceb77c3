"""The guards themselves: a guard that cannot fail guards nothing."""

from __future__ import annotations

pytest_plugins = ["pytester"]

import pytest

CONFTEST = (__import__("pathlib").Path(__file__).parent / "conftest.py").read_text()


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("import asyncio\nasync def test_x():\n    globals()['t'] = asyncio.create_task(asyncio.sleep(60))\n", "tasks left"),
        (
            "import subprocess\ndef test_x():\n    globals()['p'] = subprocess.Popen(['sleep', '5'])\n",
            "children left",
        ),
    ],
)
def test_guard_bites(pytester: pytest.Pytester, body: str, word: str) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(body)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-o", "asyncio_mode=auto")
    assert word in result.stdout.str()
    __import__("subprocess").run(["pkill", "-P", str(__import__("os").getpid()), "sleep"], check=False)
