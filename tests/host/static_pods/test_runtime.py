# SPDX-License-Identifier: Apache-2.0
"""Images are pulled before the manifest is taken away, and running containers are seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.errors import Terminal
from nodeagent.host.static_pods.running import Crictl
from nodeagent.reasons import Reason

CRICTL = """#!/bin/sh
echo "$@" >> {calls}
case "$1 $2 $3${{5:+ $5}}" in
version*) exit {answers} ;;
"inspecti --quiet there") exit 0 ;;
"pull pullable ") exit 0 ;;
ps*uid=ours) echo "WARN: no config" >&2; echo {id} ;;
ps*) ;;
*) fails=1 ;;
esac
[ $fails ] || exit 0
echo "warning" >&2
echo "not found: $2$3" >&2
exit 1
"""


def install(directory: Path, *, answers: int = 0) -> Crictl:
    program = directory / "crictl"
    program.write_text(CRICTL.format(calls=directory / "calls", answers=answers, id="0" * 64))
    program.chmod(0o755)
    return Crictl(search_path=str(directory))


def calls(directory: Path) -> list[str]:
    return (directory / "calls").read_text().splitlines()


async def test_what_is_missing_is_pulled(tmp_path: Path) -> None:
    await install(tmp_path).ensure({"there": "IfNotPresent", "pullable": ""})
    assert calls(tmp_path) == ["version", "inspecti --quiet there", "inspecti --quiet pullable", "pull pullable"]


async def test_always_is_pulled(tmp_path: Path) -> None:
    await install(tmp_path).ensure({"pullable": "Always"})
    assert calls(tmp_path) == ["version", "pull pullable"]


@pytest.mark.parametrize(("image", "policy"), [("gone", ""), ("pullable", "Never"), ("there", "Always")])
async def test_an_image_that_cannot_be_used(tmp_path: Path, image: str, policy: str) -> None:
    with pytest.raises(Terminal) as caught:
        await install(tmp_path).ensure({image: policy})
    assert caught.value.reason is Reason.STATIC_POD_IMAGE
    assert "warning" not in caught.value.message


async def test_no_answer_is_no_failure(tmp_path: Path) -> None:
    await install(tmp_path, answers=1).ensure({"gone": ""})
    assert calls(tmp_path) == ["version"]
    await Crictl(search_path=str(tmp_path / "elsewhere")).ensure({"gone": ""})


async def test_a_container_that_runs(tmp_path: Path) -> None:
    crictl = install(tmp_path)
    assert await crictl.runs("ours")
    assert not await crictl.runs("theirs")
    assert calls(tmp_path)[0] == "ps --quiet --no-trunc --label io.kubernetes.pod.uid=ours"
    assert not await Crictl(search_path=str(tmp_path / "elsewhere")).runs("ours")
