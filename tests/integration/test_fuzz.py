# SPDX-License-Identifier: Apache-2.0
"""The targets of `make fuzz` on their seeds, and on a few hundred inputs that are derived from them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from integration.fuzz.target import Target
from integration.fuzz.targets import TARGETS

DERIVED = 150


def derived(seeds: list[bytes]) -> Iterator[bytes]:
    """Seeds with changed, cut and repeated bytes, the same ones in each run."""
    choice = random.Random(7)
    for _ in range(DERIVED):
        data = bytearray(choice.choice(seeds) or b"\0\0\0")
        for _ in range(choice.randint(1, 4)):
            at = choice.randrange(len(data) + 1)
            match choice.randrange(4):
                case 0:
                    data[at : at + 1] = bytes([choice.randrange(256)])
                case 1:
                    del data[at : at + choice.randint(1, 8)]
                case 2:
                    data[at:at] = data[at : at + choice.randint(1, 16)]
                case _:
                    data[at:at] = choice.choice((b"{", b"[", b'"', b"null", b"\xff", b"-1", b"%", b"\n"))
        yield bytes(data)


@pytest.mark.finding(
    "attack: answers of an API server",
    "Whatever comes from outside is read, or is an error that the adapter documents.",
)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_seeds_of_each_target(target: Target) -> None:
    seeds = list(target.seeds)
    for data in [*seeds, *derived(seeds)]:
        target.run(data)
