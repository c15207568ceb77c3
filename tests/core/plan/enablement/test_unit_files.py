# SPDX-License-Identifier: Apache-2.0
"""The names of units, with the links that make one an alias of another."""

from __future__ import annotations

import pytest

from nodeagent.core.config.file_tree import SymbolicLink
from nodeagent.core.plan.enablement.unit_files import dropin_dirs, names_of

UNITS = "/etc/systemd/system"


@pytest.mark.parametrize(
    ("links", "names"),
    [
        ({}, ["a.service"]),
        ({"a.service": "b.service"}, ["a.service", "b.service"]),
        ({"a.service": f"{UNITS}/b.service", "b.service": "c.service"}, ["a.service", "b.service", "c.service"]),
        ({"a.service": "b.service", "b.service": "a.service"}, ["a.service", "b.service"]),
        ({"a.service": "a.service"}, ["a.service"]),
        ({"a.service": "no unit"}, ["a.service"]),
        ({"a.service": "/dev/null"}, ["a.service"]),
    ],
    ids=["none", "one", "two", "in a circle", "to itself", "to no unit", "a mask"],
)
def test_names(links: dict[str, str], names: list[str]) -> None:
    files = {f"{UNITS}/{name}": SymbolicLink(target) for name, target in links.items()}
    assert names_of("a.service", files) == names


def test_a_unit_has_the_drop_ins_of_each_prefix() -> None:
    assert dropin_dirs("foo-bar-baz@1.service") == [
        "foo-bar-baz@1.service.d",
        "foo-bar-baz@.service.d",
        "foo-bar-.service.d",
        "foo-.service.d",
        "service.d",
    ]
    assert dropin_dirs("foo.service") == ["foo.service.d", "service.d"]


def test_an_instance_of_an_alias_is_an_instance() -> None:
    assert names_of("a@1.service", {f"{UNITS}/a@.service": SymbolicLink("b@.service")}) == [
        "a@1.service",
        "b@1.service",
    ]
