"""Images are pulled before the manifest is taken away."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.errors import Terminal
from nodeagent.host.static_pods.images import CrictlImages
from nodeagent.reasons import Reason

CRICTL = """#!/bin/sh
echo "$@" >> {calls}
case "$1 $2 $3" in
version*) exit {answers} ;;
"inspecti --quiet there") exit 0 ;;
"pull pullable ") exit 0 ;;
esac
echo "warning" >&2
echo "not found: $2$3" >&2
exit 1
"""


def install(directory: Path, *, answers: int = 0) -> CrictlImages:
    program = directory / "crictl"
    program.write_text(CRICTL.format(calls=directory / "calls", answers=answers))
    program.chmod(0o755)
    return CrictlImages(search_path=str(directory))


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
    await CrictlImages(search_path=str(tmp_path / "elsewhere")).ensure({"gone": ""})
