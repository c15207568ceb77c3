# SPDX-License-Identifier: Apache-2.0
"""The values of a plan and its diffs: what they show, what they hide, and their bounds."""

from __future__ import annotations

import pytest

from nodeagent.core.config.fetched import kept_at
from nodeagent.core.config.file_tree import RegularFile, SymbolicLink
from nodeagent.core.config.machineconfig import FileEntry, LinkEntry, MachineConfig, UnitEntry, UserEntry
from nodeagent.core.plan.change import Detail
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.plan_values import MAX_DETAILS, Disk, with_values
from nodeagent.domains import default_policy
from nodeagent.report import plan_diff
from nodeagent.report.plan_diff import diffs
from tests.support.keys import ed25519

PATH = "/etc/x"


def config(content: bytes | None = None, mode: int = 0o644, user: int | str = 0) -> MachineConfig:
    return MachineConfig("c", files={} if content is None else {PATH: FileEntry(PATH, content, mode, user)})


def details(old: MachineConfig, new: MachineConfig, disk: Disk | None = None, *, private: bool = False) -> list[Detail]:
    plan = with_values(make_plan(old, new, default_policy()), old, new, disk, private=private)
    return [detail for planned in plan.changes for detail in planned.details]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (config(b"a\nb\n"), config(b"a\nc\nd\n"), [Detail("content", added=2, removed=1)]),
        (config(b"a\n"), config(b"a\n", 0o755), [Detail("mode", "0644", "0755")]),
        (config(b"a\n"), config(b"a\n", user=7), [Detail("owner", "0:0", "7:0")]),
        (config(b"a\n"), config(b"a\r\n"), [Detail("content", after="other line endings or another order of lines")]),
        (config(b"a\0"), config(b"a\0b"), [Detail("content", "binary, 2 bytes", "binary, 3 bytes")]),
        (config(b"a\n", 0o600), config(b"b\n", 0o600), [Detail("content")]),
        (
            config(),
            config(b"a\n", 0o600, 7),
            [Detail("content"), Detail("mode", "", "0600"), Detail("owner", "", "7:0")],
        ),
        (config(b"a\n"), config(), [Detail("content", added=0, removed=1)]),
    ],
)  # fmt: skip
def test_a_file(old: MachineConfig, new: MachineConfig, expected: list[Detail]) -> None:
    assert details(old, new) == expected


def test_the_lines_of_a_private_file_are_counted_on_request() -> None:
    assert details(config(b"a\n", 0o600), config(b"b\n"), private=True)[0] == Detail("content", added=1, removed=1)


def test_the_disk_is_compared_where_it_is_not_the_config() -> None:
    disk = {PATH: RegularFile(b"a\nb\n", 0o600, 5, 5)}
    found = details(config(), config(b"a\n"), disk, private=True)
    assert found == [
        Detail("content", added=0, removed=1),
        Detail("mode", "0600", "0644"),
        Detail("owner", "5:5", "0:0"),
        Detail("replaces", after="a file of the host"),
    ]
    link = {PATH: SymbolicLink("/run/x")}
    assert details(config(b"z\n"), config(b"a\n"), link)[0] == Detail("type", "link to /run/x", "file")


IMAGE = "/var/lib/extensions/app.raw"


def with_image(letter: str, url: str) -> MachineConfig:
    return MachineConfig("c", links={IMAGE: LinkEntry(IMAGE, kept_at(f"sha256-{letter * 64}"), source=url)})


def test_an_image_is_shown_by_digest_and_address() -> None:
    old, new = with_image("a", "https://h/app-1.raw?token=secret"), with_image("b", "https://h/app-2.raw#x")
    digests = [f"image sha256-{letter * 64}" for letter in "ab"]
    assert details(old, new) == [
        Detail("type", *digests),
        Detail("address", "https://h/app-1.raw", "https://h/app-2.raw"),
    ]
    assert details(MachineConfig("c"), new) == [
        Detail("type", "", digests[1]),
        Detail("address", "", "https://h/app-2.raw"),
    ]
    assert details(old, MachineConfig("c")) == [Detail("type", digests[0], "")]
    same = with_image("b", "https://h/app-1.raw?token=other")
    assert details(old, same) == [Detail("type", *digests)]


def test_a_unit() -> None:
    old = MachineConfig("c", units={"a.service": UnitEntry("a.service", "x\n", True, dropins={"d.conf": "1\n"})})
    new = MachineConfig("c", units={"a.service": UnitEntry("a.service", "x\ny\n", mask=False, dropins={"e.conf": "1"})})
    assert details(old, new) == [
        Detail("state", "enabled", "as the preset says"),
        Detail("content", added=1, removed=0),
        Detail("drop-in d.conf", added=0, removed=1),
        Detail("drop-in e.conf", added=1, removed=0),
    ]


@pytest.mark.parametrize(
    ("was", "there", "replaces"),
    [
        (None, "/etc/systemd/system/a.service", True),
        (None, "/etc/systemd/system/a.service.d/a.conf", True),
        (None, "/etc/systemd/system/b.service", False),
        (UnitEntry("a.service", "[Service]\n", dropins={"a.conf": "[Unit]\n"}), "/etc/systemd/system/a.service", False),
    ],
)
def test_a_unit_that_replaces_a_file_of_the_host(was: UnitEntry | None, there: str, replaces: bool) -> None:
    now = UnitEntry("a.service", "[Service]\nType=oneshot\n", dropins={"a.conf": "[Unit]\nAfter=b.service\n"})
    old, new = (MachineConfig("c", units={"a.service": unit} if unit else {}) for unit in (was, now))
    shown = details(old, new, {there: RegularFile(b"[Service]\nUser=x\n")})
    assert (Detail("replaces", after="a file of the host") in shown) is replaces


def test_credentials_in_fields_are_hidden_and_lists_are_bounded() -> None:
    old = MachineConfig("c", os_image_url="https://bob:hunter2@r.example/os")
    arguments = tuple(f"token=secret{number}" for number in range(MAX_DETAILS + 10))
    found = details(old, MachineConfig("c", kernel_arguments=arguments))
    assert "hunter2" not in str(found)
    assert "secret1" not in str(found)
    assert Detail("more", after="10 more") in found


@pytest.mark.finding("configs: order of kernel arguments", "A plan shows a number of huge pages with their size.")
def test_huge_pages_are_shown_with_their_size() -> None:
    old = MachineConfig("a", kernel_arguments=("hugepagesz=1G", "hugepages=4", "hugepagesz=2M", "hugepages=4", "quiet"))
    new = MachineConfig("b", kernel_arguments=("hugepagesz=1G", "hugepages=4", "hugepagesz=2M", "hugepages=6", "nosmt"))
    assert [detail.before or detail.after for detail in details(old, new)] == [
        "quiet",
        "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4",
        "nosmt",
        "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6",
    ]
    # The same ones are no change.
    assert details(old, MachineConfig("c", kernel_arguments=old.kernel_arguments[:-1])) == [Detail("argument", "quiet")]


def test_a_line_without_a_key_is_not_quoted() -> None:
    users = {"core": UserEntry("core", (ed25519("A"), "hunter2 hunter2"))}
    found = details(MachineConfig("c"), MachineConfig("c", users=users))
    assert [detail.after.partition(":")[0] for detail in found] == ["SHA256", "a line without a key"]


def diff(old: bytes, new: bytes) -> str:
    a, b = config(old), config(new)
    return diffs(make_plan(a, b, default_policy()), a, b).get(f"file:{PATH}", "")


KEY = b"-----BEGIN PRIVATE KEY-----\n%b\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("old", "new", "shown", "hidden"),
    [
        (b"a\nb\n", b"a\nc\n", "-b\n+c\n", "x"),
        (b"x\ntoken = one\n", b"y\ntoken = two\n", "hidden values differ, too", "one"),
        (KEY % b"abc\ndef", KEY % b"abc\nghi", "only hidden values", "ghi"),
        (b"a\0", b"b\0secret", "binary content differs: 2 bytes, then 8", "secret"),
        (b"a\n", b"a\n" * 3000, "too large for a diff", "@@"),
        (b"", b"".join(b"%d\n" % number for number in range(1000)), "the rest of the diff is not shown", "+999"),
        (b"a\n", b"a " * 5000, "[cut]", "a " * 2000),
    ],
    ids=["lines", "a secret beside a line", "private key", "binary", "many lines", "many changes", "a long line"],
)
def test_a_diff(old: bytes, new: bytes, shown: str, hidden: str) -> None:
    text = diff(old, new)
    assert shown in text
    assert hidden not in text.removeprefix(f"--- {PATH}\n+++ {PATH}\n")


def test_all_diffs_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_diff, "MAX_TOTAL", 1000)
    paths = [f"/etc/{number}" for number in range(5)]
    new = MachineConfig("c", files={path: FileEntry(path, b"line\n" * 100) for path in paths})
    found = diffs(make_plan(MachineConfig("c"), new, default_policy()), MachineConfig("c"), new)
    assert [text.startswith("---") for text in found.values()] == [True, True, False, False, False]
