# SPDX-License-Identifier: Apache-2.0
"""Files of sysctl.d, as systemd-sysctl reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.domains.sysctl import dotted, parse, read_all

# A line, and the name and the value that it sets; None for a line that is no setting.
LINES: dict[str, tuple[str, tuple[str, str | None] | None]] = {
    "dots": ("net.ipv4.ip_forward = 1", ("net/ipv4/ip_forward", "1")),
    "slashes": ("net/ipv4/ip_forward=1", ("net/ipv4/ip_forward", "1")),
    "a dot in a name, after slashes": (
        "net/ipv4/conf/eth0.200/forwarding=1",
        ("net/ipv4/conf/eth0.200/forwarding", "1"),
    ),
    "a dot in a name, after dots": ("net.ipv4.conf.eth0/200.forwarding=1", ("net/ipv4/conf/eth0.200/forwarding", "1")),
    "a slash at the beginning": ("/net/ipv4/ip_forward=1", ("net/ipv4/ip_forward", "1")),
    "failures are ignored": ("-vm.swappiness = 1", ("vm/swappiness", "1")),
    "several words": ("\tnet.ipv4.tcp_rmem =  1 2\t3 \r", ("net/ipv4/tcp_rmem", "1 2\t3")),
    "an equals sign in the value": ("kernel.core_pattern = |/x %p=%u", ("kernel/core_pattern", "|/x %p=%u")),
    "no value": ("vm.swappiness =", ("vm/swappiness", "")),
    "a pattern": ("net.ipv4.conf.*.rp_filter = 2", ("net/ipv4/conf/*/rp_filter", "2")),
    "an exception of patterns": ("-net.ipv4.conf.all.rp_filter", ("net/ipv4/conf/all/rp_filter", None)),
    "no assignment": ("net.ipv4.ip_forward", None),
    "no name": ("= 1", None),
    "a dash": ("-", None),
    "out of the directory": ("net/../../self/comm = x", None),
    "out of the directory, with dots": ("net.//.x = 1", None),
    "a control character": ("vm.swappiness = 1\x00", None),
}


@pytest.mark.parametrize("case", LINES)
def test_lines(case: str) -> None:
    line, wanted = LINES[case]
    found = parse(f"# comment\n; another\n\n{line}\n".encode())
    assert (dict(found.values), found.invalid) == (dict([wanted]), ()) if wanted else ({}, (4,))


def test_the_last_line_of_a_name_counts() -> None:
    assert dict(parse(b"vm.a = 1\nvm/b = 2\nvm/a = 3").values) == {"vm/b": "2", "vm/a": "3"}


def test_the_files_that_count() -> None:
    found = read_all(
        {
            "/etc/sysctl.d/50-a.conf": b"vm.a = etc",
            "/usr/lib/sysctl.d/50-a.conf": b"vm.a = usr\nvm.only_usr = 1",
            "/run/sysctl.d/40-b.conf": b"vm.b = run\nvm.a = run",
            "/usr/local/lib/sysctl.d/40-b.conf": b"vm.b = local",
            "/usr/lib/sysctl.d/60-c.conf": b"vm.c = 1",
            "/etc/sysctl.d/60-c.conf": b"",
            "/etc/sysctl.d/README": b"vm.d = 1",
            "/etc/sysctl.d/sub/70-e.conf": b"vm.e = 1",
            "/etc/sysctl.conf": b"vm.f = 1",
        }
    )
    assert dict(found.values) == {"vm/b": "run", "vm/a": "etc"}
    assert list(found.files) == ["/run/sysctl.d/40-b.conf", "/etc/sysctl.d/50-a.conf", "/etc/sysctl.d/60-c.conf"]


PIECES = st.sampled_from(
    ["net", "vm", ".", "/", "..", "-", "=", " ", "*", "[", "\n", "\r", "\t", "#", ";", "\0", "1", "é"]
)


@given(st.one_of(st.binary(max_size=300), st.lists(PIECES, max_size=40).map(lambda parts: "".join(parts).encode())))
def test_any_content(content: bytes) -> None:
    found = parse(content)
    assert len(found.values) + len(found.invalid) <= content.count(b"\n") + 1
    for name, value in found.values.items():
        assert not {"", ".", ".."} & set(name.split("/"))
        assert name.isprintable() or "\t" in name
        # The form in a plan names the same setting.
        assert dict(parse(f"-{dotted(name)}".encode()).values) == {name: None} or name != name.strip()
        assert value is None or value == value.strip(" \t\r")
