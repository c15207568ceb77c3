# SPDX-License-Identifier: Apache-2.0
"""Merging kernel arguments: what is asked for is there, in order, once; nothing else moves."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config.kargs import line_of, merged, split

TOKENS = st.lists(st.sampled_from(["a", "a=", "a=1", "a=2", "b", "b=1", "c"]), max_size=6)


@pytest.mark.parametrize(
    ("existing", "wanted", "without", "result"),
    [
        ("root=x quiet", "", "", "root=x quiet"),
        ("root=x quiet", "nosmt", "", "root=x quiet nosmt"),
        ("root=x quiet", "quiet", "", "root=x quiet"),
        ("root=x quiet", "", "quiet absent", "root=x"),
        ("root=x quiet", "quiet", "quiet", "root=x quiet"),  # what is wanted is not without
        ("ostree=/ostree/boot.1/x/y/0 root=x", "", "", "root=x"),
        # The kernel takes the last of a key, so the order of one key has a meaning.
        ("console=tty0 quiet console=ttyS0", "console=ttyS0 console=tty0", "", "quiet console=ttyS0 console=tty0"),
        ("console=tty0 quiet", "console=tty0 console=ttyS0", "", "quiet console=tty0 console=ttyS0"),
        ("console=ttyS0 quiet", "console=tty0 console=ttyS0", "", "quiet console=tty0 console=ttyS0"),
        ("console=hvc0 quiet", "console=tty0", "", "console=hvc0 quiet console=tty0"),
        ("a=1 a=1", "a=1", "", "a=1 a=1"),  # the host's own double stays
        ("a=1", "a=1 a=1", "", "a=1 a=1"),
    ],
)
def test_merging(existing: str, wanted: str, without: str, result: str) -> None:
    assert merged(split(existing), split(wanted), split(without)) == tuple(split(result))


@given(TOKENS, TOKENS, TOKENS)
def test_merging_gives_what_was_asked_for(existing: list[str], wanted: list[str], without: list[str]) -> None:
    result = merged(existing, wanted, without)
    assert not Counter(wanted) - Counter(result)
    assert not set(result) & (set(without) - set(wanted))
    for key in "abc":
        mine = [token for token in wanted if token.partition("=")[0] == key]
        there = iter(token for token in result if token in mine)
        assert all(token in there for token in mine), "in order"


@given(TOKENS, TOKENS, TOKENS)
def test_merging_again_changes_nothing(existing: list[str], wanted: list[str], without: list[str]) -> None:
    once = merged(existing, wanted, without)
    assert merged(once, wanted, without) == once


@given(TOKENS, TOKENS, TOKENS)
def test_unmentioned_arguments_keep_their_order(existing: list[str], wanted: list[str], without: list[str]) -> None:
    spoken = set(wanted) | set(without)
    result = merged(existing, wanted, without)
    assert [t for t in result if t not in spoken] == [t for t in existing if t not in spoken]


TOGETHER = pytest.mark.finding(
    "configs: order of kernel arguments", "Kernel arguments that belong together stay together, in order and number."
)


@TOGETHER
@pytest.mark.parametrize(
    ("existing", "wanted", "without", "own", "result"),
    [
        # A count changes: the whole block is written again.
        ("root=x 1G 4 2M 100", "1G 8 2M 100", "1G 4 2M 100", "", "root=x 1G 8 2M 100"),
        ("root=x 1G 4 2M 4", "1G 4 2M 6", "1G 4 2M 4", "", "root=x 1G 4 2M 6"),
        ("root=x 1G 16", "2M 16", "1G 16", "", "root=x 2M 16"),
        ("root=x 1G 4 2M 4", "1G 4", "1G 4 2M 4", "", "root=x 1G 4"),
        ("root=x 1G 4 nosmt 2M 4 own=1", "1G 4 2M 8 nosmt", "1G 4 nosmt 2M 4", "", "root=x own=1 1G 4 2M 8 nosmt"),
        # Present by chance is not present.
        ("root=x 1G 100", "2M 100", "", "", "root=x 1G 100 2M 100"),
        ("root=x 1G 2M 8 100", "1G 8 2M 100", "1G 8 2M 100", "", "root=x 1G 8 2M 100"),
        # The kernel takes the first count of a size, so that of the host makes room, and comes back.
        ("root=x 1G 4 2M 9", "1G 8", "", "", "root=x 2M 9 1G 8"),
        ("root=x 2M 9 1G 8", "", "1G 8", "1G 4 2M 9", "root=x 1G 4 2M 9"),
        # One of two equal tokens leaves.
        ("root=x a=1 a=1", "a=1", "a=1 a=1", "", "root=x a=1"),
        ("root=x a a", "a", "a a", "a", "root=x a"),
        # The effect is there: the place does not matter.
        ("b=1 2M 9 root=x a=1", "a=1 b=1 2M 9", "", "", "b=1 2M 9 root=x a=1"),
        ("1G 4 quiet 2M 9", "2M 9", "", "", "1G 4 quiet 2M 9"),
        ("rd.lvm.lv=a rd.lvm.lv=b root=x", "rd.lvm.lv=a", "", "", "rd.lvm.lv=a rd.lvm.lv=b root=x"),
        # The last console is /dev/console.
        ("console=ttyS0 console=tty0 quiet", "console=ttyS0", "", "", "console=tty0 quiet console=ttyS0"),
        # Of these keys the last value counts, whatever other keys of the same program do.
        (
            "systemd.log_level=a systemd.log_level=b",
            "systemd.log_level=a",
            "",
            "",
            "systemd.log_level=b systemd.log_level=a",
        ),
        ("rd.timeout=5 rd.timeout=0 x", "rd.timeout=5", "", "", "rd.timeout=0 x rd.timeout=5"),
        (
            "module_blacklist=a module_blacklist=b",
            "module_blacklist=a",
            "",
            "",
            "module_blacklist=b module_blacklist=a",
        ),
        (
            "modprobe.blacklist=a modprobe.blacklist=b",
            "modprobe.blacklist=a",
            "",
            "",
            "modprobe.blacklist=a modprobe.blacklist=b",
        ),
        ("systemd.mask=a systemd.mask=b", "systemd.mask=a", "", "", "systemd.mask=a systemd.mask=b"),
        (
            "systemd.mount-extra=a systemd.mount-extra=b",
            "systemd.mount-extra=a",
            "",
            "",
            "systemd.mount-extra=a systemd.mount-extra=b",
        ),
        # A quote may begin before the name.
        ('"a=1 2" x', 'a="3 4"', '"a=1 2"', "", 'x a="3 4"'),
        ('a=1 "a=2 3"', "a=1", "", "", '"a=2 3" a=1'),
        # A count without a size is of the default size, and only before all sizes.
        ("2M 5 root=x", "10", "", "", "root=x 10 2M 5"),
        ("1G 4 root=x", "4", "", "", "root=x 4 1G 4"),
        ("7 root=x", "1G 4", "", "", "7 root=x 1G 4"),
        ("default_hugepagesz=1G 4", "1G 8", "", "", "default_hugepagesz=1G 1G 8"),
        ("7 root=x", "default_hugepagesz=1G 1G 4", "", "", "root=x default_hugepagesz=1G 1G 4"),
        # All of the config is one block, in its order.
        ("root=x a=1 b=1 c=1", "a=2 b=1 c=1", "a=1 b=1 c=1", "", "root=x a=2 b=1 c=1"),
    ],
)
def test_arguments_that_belong_together(existing: str, wanted: str, without: str, own: str, result: str) -> None:
    tokens = [_pages(each) for each in (existing, wanted, without, own)]
    once = merged(*tokens)
    assert once == tuple(_pages(result))
    assert merged(once, *tokens[1:]) == once


def _pages(text: str) -> list[str]:
    """Spell out sizes and counts of huge pages."""
    return [
        f"hugepagesz={token}" if token in ("1G", "2M") else f"hugepages={token}" if token.isdigit() else token
        for token in split(text)
    ]


OWN = pytest.mark.finding(
    "configs: arguments of the host", "An argument that the host has on its own comes back as it was."
)


@OWN
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("root=x rw quiet", "quiet"),
        ("root=x console=tty0 console=ttyS0 rw", "console=ttyS0 console=tty0"),
        ("root=x console=tty0 console=ttyS0 rw", "console=tty0 nosmt"),
        ("root=x hugepagesz=1G hugepages=4", "hugepagesz=1G hugepages=8"),
        ("a a root=x", "a"),
    ],
)
def test_own_arguments_come_back(line: str, wanted: str) -> None:
    host, config = split(line), split(wanted)
    own = [token for token in host if token.partition("=")[0] in {each.partition("=")[0] for each in config}]
    own = own if "hugepages" not in wanted else [token for token in host if "hugepages" in token]
    managed = merged(host, config, ())
    assert sorted(merged(managed, (), config, own)) == sorted(host)
    assert [t for t in merged(managed, (), config, own) if t in own] == own


# Shapes of arguments in published configs and images.
SHAPES = st.sampled_from(
    [
        *(f"hugepagesz={size}" for size in ("1G", "2M")),
        *(f"hugepages={count}" for count in (4, 100)),
        "default_hugepagesz=1G",
        *(f"console={name}" for name in ("tty0", "ttyS0,115200n8")),
        *("quiet", "rw", "nosmt", "audit=0", "audit=1", "ip=dhcp", "ip=ens3:dhcp", "rd.neednet=1", "nosmt=force"),
        *("rd.luks.uuid=1", "rd.luks.uuid=2", "skew_tick=1", "isolcpus=managed_irq,2-3", "systemd.cpu_affinity=0,1"),
    ]
)
PAIRS = st.tuples(st.sampled_from(["1G", "2M"]), st.sampled_from(["4", "100"])).map(
    lambda pair: [f"hugepagesz={pair[0]}", f"hugepages={pair[1]}"]
)
LINES = st.lists(st.one_of(PAIRS, SHAPES.map(lambda token: [token])), max_size=6).map(
    lambda parts: [*chain.from_iterable(parts)]
)
WELL_FORMED = LINES.filter(lambda tokens: sizes(tokens) is not None)


def sizes(line: list[str] | tuple[str, ...]) -> dict[str, str] | None:
    """Read huge pages as the kernel does (mm/hugetlb.c): size to count, "" for the default size. None if it would
    ignore an argument, or reads one in a way that depends on another one."""
    found: dict[str, str] = {}
    size: str | None = None
    for token in line:
        key, _, value = token.partition("=")
        if key == "hugepagesz":
            if value in found or size is not None:
                return None
            size = value
        elif key == "hugepages":
            if size is None:
                return None
            found[size], size = value, None
    return found if size is None and sum(token.startswith("default_hugepagesz=") for token in line) < 2 else None


SIZES = st.sampled_from(
    [
        *([f"hugepages={count}"] for count in (4, 100)),
        *([f"default_hugepagesz={size}"] for size in ("1G", "2M")),
        *(
            [f"hugepagesz={size}", f"hugepages={count}"]
            for size, count in (("1G", 4), ("1G", 8), ("2M", 9), ("16G", 1))
        ),
    ]
)
BUILT_IN = "built in"


def pools(line: list[str] | tuple[str, ...]) -> dict[str, int] | None:
    """Read a line as mm/hugetlb.c does, counts of the default size included: size to count. None if it would ignore an
    argument, or has two counts of one size."""
    found: dict[str, int] = {}
    default, size, first, counts = "", "", 0, 0
    target: str | None = None
    for key, _, value in (token.partition("=") for token in line):
        if key == "hugepages":
            counts += 1
            if target == size:
                return None
            target = size
            if size:
                found[size] = int(value)
            else:
                first = int(value)
        elif key == "hugepagesz":
            if value in found and (value != default or found[value]):
                return None
            found.setdefault(value, 0)
            size = value
        elif default:
            return None
        else:
            default, size = value, size if value in found else value
            found[value], first = first or found.get(value, 0), 0
    if first:
        found[BUILT_IN] = first
    given = {each: count for each, count in found.items() if count}
    return given if len(given) == counts else None


PAGES = (
    st.lists(SIZES, max_size=4)
    .map(lambda parts: [*chain.from_iterable(parts)])
    .filter(lambda tokens: pools(tokens) is not None)
)


@TOGETHER
@given(PAGES, PAGES)
def test_counts_of_the_default_size(host: list[str], config: list[str]) -> None:
    line = merged(host, config, ())
    assert merged(line, config, (), host) == line
    assert not config or list(merged(line, (), config, host)) == host
    # What the config counts is the same with the default size of the host. It may count that size twice by then.
    default = [token for token in line if token.startswith("default_hugepagesz=") and token not in config]
    if (wanted := pools([*config, *default])) is not None:
        found = pools(line)
        assert found is not None, "nothing is ignored"
        assert wanted.items() <= found.items()


def last(line: list[str] | tuple[str, ...], key: str) -> str:
    return next((token for token in reversed(line) if token.partition("=")[0] == key), "")


@TOGETHER
@given(WELL_FORMED, WELL_FORMED, WELL_FORMED)
def test_real_arguments_from_config_to_config(host: list[str], first: list[str], second: list[str]) -> None:
    """A host gets one config, another one, and none. What the kernel reads is the config on top of what is the host's
    own, and in the end its own again."""
    own = [*host]
    line = merged(host, first, ())
    for old, new in (([], first), (first, second), (second, [])):
        families = {_family(token) for token in old}
        mine = [token for token in own if _family(token) in families]
        line = merged(line, new, old, mine)
        assert merged(line, new, old, mine) == line
        assert merged(line, new, ()) == line, "verified without the config before"
        assert sizes(line) == {**(sizes(host) or {}), **(sizes(new) or {})}
        for key in ("console", "audit", "nosmt"):
            assert last(line, key) == (last(new, key) or last(host, key))
        assert not Counter(new) - Counter(line)
    assert Counter(line) == Counter(line_of(host))


def _family(token: str) -> str:
    key = token.partition("=")[0]
    return "hugepages" if "hugepages" in key else key
