# SPDX-License-Identifier: Apache-2.0
"""The pure decisions: actions of the policy, what is merged, what is removed, redirects."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config.fetched import kept_at
from nodeagent.core.config.machineconfig import FileEntry, LinkEntry, MachineConfig, UnitEntry
from nodeagent.core.plan.plan import make_plan
from nodeagent.domains import default_policy
from nodeagent.features.extension_images.decide import (
    KEEP_UNUSED,
    UNIT,
    KeptFile,
    Wishes,
    merged,
    merged_names,
    redirected,
    release_of,
    surplus,
    version_of,
    wishes_of,
)

EMPTY = MachineConfig("a")
IMAGE = LinkEntry("/var/lib/extensions/app.raw", kept_at(f"sha256-{'a' * 64}"), source="https://h/app.raw")
STORED = replace(IMAGE, path="/opt/extensions/app/app-v1.raw")
LINK = LinkEntry("/etc/extensions/app.raw", STORED.path)
OVERLAY = "41 28 0:35 / {0} ro,nodev,relatime shared:2 - overlay {1} ro,lowerdir={2}\n"
LAYERS = "/run/systemd/sysext/meta/usr:/run/systemd/sysext/extensions/{0}/usr:/usr"


def with_links(*links: LinkEntry) -> MachineConfig:
    return MachineConfig("b", links={link.path: link for link in links})


@pytest.mark.parametrize("links", [(IMAGE,), (LINK, STORED), (STORED,), (LINK,)])
def test_an_image_that_comes_or_leaves_is_merged_again(links: tuple[LinkEntry, ...]) -> None:
    for old, new in ((EMPTY, with_links(*links)), (with_links(*links), EMPTY)):
        plan = make_plan(old, new, default_policy())
        words = [f"{action.type} {action.unit}" for action in plan.actions]
        assert words == ["Reload systemd-sysext.service"]


def test_the_unit_is_started_when_a_config_enables_it() -> None:
    new = MachineConfig("b", units={UNIT: UnitEntry(UNIT, enabled=True)})
    plan = make_plan(EMPTY, new, default_policy())
    assert [str(action.type) for action in plan.actions] == ["DaemonReload", "Reload", "Start"]


def test_an_image_within_the_config_is_merged_as_well() -> None:
    new = MachineConfig("b", files={IMAGE.path: FileEntry(IMAGE.path, b"hsqs")})
    assert [action.type for action in make_plan(EMPTY, new, default_policy()).actions] == ["Reload"]


@pytest.mark.parametrize(
    ("links", "names"),
    [
        ((), []),
        ((IMAGE,), ["app"]),
        ((LINK, STORED), ["app"]),
        ((LINK,), []),
        ((STORED,), []),
        ((replace(IMAGE, path="/etc/extensions/z.raw"), IMAGE), ["app", "z"]),
    ],
)
def test_the_names_of_the_images_that_are_merged(links: tuple[LinkEntry, ...], names: list[str]) -> None:
    assert merged_names(with_links(*links)) == names


@pytest.mark.parametrize(
    ("mountinfo", "names"),
    [
        ("", set()),
        ("28 1 0:22 / / rw - ext4 /dev/vda1 rw\n", set()),
        (OVERLAY.format("/usr", "sysext", LAYERS.format("app")), {"app"}),
        (OVERLAY.format("/opt", "overlay", LAYERS.format("a-1.2")), {"a-1.2"}),
        (OVERLAY.format("/etc", "confext", LAYERS.format("app")), set()),
        (OVERLAY.format("/var/lib/x", "overlay", LAYERS.format("app")), set()),
        # A later version may show its layers in another way.
        (OVERLAY.format("/usr", "sysext", "/proc/self/fd/4:/usr"), None),
    ],
)
def test_what_is_merged(mountinfo: str, names: set[str] | None) -> None:
    assert merged(mountinfo) == names


@given(
    files=st.lists(
        st.builds(KeptFile, st.text("abcdef", min_size=1, max_size=3), st.integers(0, 100), st.floats(0, 1000)),
        unique_by=lambda file: file.name,
    ),
    used=st.sets(st.text("abcdef", min_size=1, max_size=3)),
    limit=st.integers(0, 200),
)
def test_what_is_used_stays_and_the_rest_is_bounded(files: list[KeptFile], used: set[str], limit: int) -> None:
    gone = set(surplus(files, used, limit))
    unused = [file for file in files if file.name not in used]
    left = [file for file in unused if file.name not in gone]
    assert not gone & used
    assert len(left) <= KEEP_UNUSED
    assert sum(file.size for file in left) <= limit
    newest = max((file.changed for file in unused), default=0)
    assert all(file.changed <= newest for file in left)


@pytest.mark.parametrize(
    ("url", "location", "target"),
    [
        ("http://h/a", "/b", "http://h/b"),
        ("http://h/a/x", "y?t=1", "http://h/a/y?t=1"),
        ("http://h/a", "https://g/b", "https://g/b"),
        ("https://h/a", "//g/b", "https://g/b"),
        ("https://h/a", "http://h/b", "from https to http"),
        ("https://h/a", "ftp://h/b", "no plain"),
        ("https://h/a", "https://u:p@h/b", "no plain"),
        ("https://h/a", "https://[", ""),
    ],
)
def test_redirects(url: str, location: str, target: str) -> None:
    if target.startswith("http"):
        assert redirected(url, location) == target
    else:
        with pytest.raises(ValueError, match=target or "."):
            redirected(url, location)


@pytest.mark.parametrize(
    ("text", "version", "wishes"),
    [
        ("ID=debian VERSION_ID=13", "", Wishes(False)),
        ("IMAGE_VERSION=3 SYSEXT_VERSION_ID=2 SYSEXT_IMAGE_VERSION=1", "1", Wishes(False)),
        ("IMAGE_VERSION=3 SYSEXT_VERSION_ID=", "3", Wishes(False)),
        (f"SYSEXT_BUILD_ID={'9' * 99}", "9" * 64, Wishes(False)),
        ("EXTENSION_RELOAD_MANAGER=1", "", Wishes(True)),
        ("EXTENSION_RELOAD_MANAGER=yes", "", Wishes(True)),
        ("EXTENSION_RELOAD_MANAGER=0", "", Wishes(False)),
        ("EXTENSION_RESTART_UNITS=a.service", "", Wishes(True, ("a.service",))),
        (
            "EXTENSION_RELOAD_OR_RESTART_UNITS=b@1.service EXTENSION_RELOAD_MANAGER=no",
            "",
            Wishes(True, ("b@1.service",)),
        ),
        ("EXTENSION_RESTART_UNITS=../etc/passwd", "", Wishes(False)),
    ],
)
def test_what_an_image_says_of_itself(text: str, version: str, wishes: Wishes) -> None:
    release = release_of(text.split())
    assert (version_of(release), wishes_of(release)) == (version, wishes)


def test_an_image_names_a_bounded_number_of_units() -> None:
    names = " ".join(f"a{number}.service" for number in range(99))
    assert len(wishes_of({"EXTENSION_RESTART_UNITS": names}).units) == 16
