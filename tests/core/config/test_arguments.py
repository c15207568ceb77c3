# SPDX-License-Identifier: Apache-2.0
"""Kernel arguments of a MachineConfig and of its Ignition config."""

from __future__ import annotations

import pytest

from nodeagent.core.config.machineconfig import meaning
from tests.core.config.documents import document, parsed, problems

AT = "spec.config.kernelArguments"


def test_those_of_ignition_follow_and_take_away() -> None:
    of_ignition = {"shouldExist": ["b", "c=1 d"], "shouldNotExist": ["quiet", "mitigations=auto,nosmt", "quiet"]}
    config = parsed(document({"kernelArguments": of_ignition}, kernelArguments=["a b"]))
    assert config.kernel_arguments == ("a", "b", "b", "c=1", "d")
    assert config.absent_arguments == ("mitigations=auto,nosmt", "quiet")
    assert config.unapplied == {}


@pytest.mark.parametrize("section", [None, {}, {"shouldExist": None, "shouldNotExist": []}])
def test_nothing_is_taken_away(section: object) -> None:
    config = parsed(document({"kernelArguments": section}))
    assert config == parsed(document({}))
    assert meaning(config) == meaning(parsed(document({})))


def test_what_is_taken_away_is_a_part_of_the_meaning() -> None:
    less, more = (parsed(document({"kernelArguments": {"shouldNotExist": ["a", *rest]}})) for rest in ([], ["b"]))
    assert len({meaning(parsed(document())), meaning(less), meaning(more)}) == 3


@pytest.mark.parametrize(
    ("section", "path", "message"),
    [
        ({"shouldExist": ["a"], "shouldNotExist": ["b a"]}, f"{AT}.shouldNotExist", "'a' must exist as well"),
        ({"shouldNotExist": ["wanted"]}, f"{AT}.shouldNotExist", "'wanted' must exist as well"),
        ({"shouldNotExist": ["root=UUID=1"]}, f"{AT}.shouldNotExist", "must not hold root="),
        ({"shouldNotExist": ["ostree=/x"]}, f"{AT}.shouldNotExist[0]", "must not hold ostree="),
        ({"shouldExist": ["a", 'b="']}, f"{AT}.shouldExist[1]", "unpaired double quote"),
        ({"shouldExist": ["a" * 4090]}, "spec.kernelArguments", "longer than 4096 characters together"),
        ({"shouldNotExist": "a"}, f"{AT}.shouldNotExist", "must be a list"),
        ({"shouldnotexist": ["a"]}, AT, "unknown key 'shouldnotexist'"),
    ],
)
def test_what_is_refused(section: object, path: str, message: str) -> None:
    (problem,) = problems(document({"kernelArguments": section}, kernelArguments=["wanted"]))
    assert problem.path == path
    assert message in problem.message
