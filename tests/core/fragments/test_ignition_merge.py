# SPDX-License-Identifier: Apache-2.0
"""The rules of Ignition for the merge of a child into its parent, one row for each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.fragments.ignition_merge import merge_ignition

Config = dict[str, Any]


def files(*entries: Config) -> Config:
    return {"storage": {"files": list(entries)}}


@pytest.mark.parametrize(
    ("parent", "child", "merged"),
    [
        # Objects: key by key, and the child's value counts. null means absent.
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b": None}, {"a": {"x": 1, "y": 3}}),
        ({"a": {"x": 1}}, {"a": None}, {"a": {"x": 1}}),
        ({"enabled": True}, {"enabled": False}, {"enabled": False}),
        # Entries with the same key are merged in the place of the parent's; others of the child follow.
        (
            files({"path": "/a", "mode": 420}, {"path": "/b"}),
            files({"path": "/c"}, {"path": "/a", "mode": 384}),
            files({"path": "/a", "mode": 384}, {"path": "/b"}, {"path": "/c"}),
        ),
        # The compression belongs to the source.
        (
            files({"path": "/a", "contents": {"source": "data:,x", "compression": "gzip"}}),
            files({"path": "/a", "contents": {"source": "data:,y"}}),
            files({"path": "/a", "contents": {"source": "data:,y"}}),
        ),
        # The controller loses it here, and writes compressed bytes: that is not followed.
        (
            files({"path": "/a", "contents": {"source": "data:,x", "compression": "gzip"}}),
            files({"path": "/a", "mode": 384}),
            files({"path": "/a", "contents": {"source": "data:,x", "compression": "gzip"}, "mode": 384}),
        ),
        # All pieces that are appended to a file count.
        (
            files({"path": "/a", "append": [{"source": "data:,x"}]}),
            files({"path": "/a", "append": [{"source": "data:,x"}]}),
            files({"path": "/a", "append": [{"source": "data:,x"}, {"source": "data:,x"}]}),
        ),
        # Files, directories and links share their keys.
        (
            {"storage": {"links": [{"path": "/a", "target": "/x"}, {"path": "/b", "target": "/x"}]}},
            files({"path": "/a"}),
            {"storage": {"links": [{"path": "/b", "target": "/x"}], "files": [{"path": "/a"}]}},
        ),
        ({"storage": {"links": [{"path": "/a", "target": "/x"}]}}, files({"path": "/a"}), files({"path": "/a"})),
        # Arguments of the kernel share theirs, too.
        (
            {"kernelArguments": {"shouldExist": ["a", "b"]}},
            {"kernelArguments": {"shouldNotExist": ["a"], "shouldExist": ["c"]}},
            {"kernelArguments": {"shouldExist": ["b", "c"], "shouldNotExist": ["a"]}},
        ),
        # Units by name, drop-ins by name.
        (
            {"systemd": {"units": [{"name": "a.service", "dropins": [{"name": "1.conf", "contents": "x"}]}]}},
            {
                "systemd": {
                    "units": [
                        {
                            "name": "a.service",
                            "enabled": True,
                            "dropins": [{"name": "2.conf", "contents": "y"}, {"name": "1.conf", "contents": "z"}],
                        }
                    ]
                }
            },
            {
                "systemd": {
                    "units": [
                        {
                            "name": "a.service",
                            "dropins": [{"name": "1.conf", "contents": "z"}, {"name": "2.conf", "contents": "y"}],
                            "enabled": True,
                        }
                    ]
                }
            },
        ),
        # Keys and groups of a user: those of both, each once.
        (
            {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k1", "k2"], "groups": ["wheel"]}]}},
            {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k2", "k3"], "groups": ["sudo", "wheel"]}]}},
            {
                "passwd": {
                    "users": [{"name": "core", "sshAuthorizedKeys": ["k1", "k2", "k3"], "groups": ["wheel", "sudo"]}]
                }
            },
        ),
        # Filesystems by device, partitions by number or label; all options count.
        (
            {"storage": {"filesystems": [{"device": "/dev/a", "format": "xfs", "mountOptions": ["ro"]}]}},
            {"storage": {"filesystems": [{"device": "/dev/a", "mountOptions": ["ro"]}, {"device": "/dev/b"}]}},
            {
                "storage": {
                    "filesystems": [
                        {"device": "/dev/a", "format": "xfs", "mountOptions": ["ro", "ro"]},
                        {"device": "/dev/b"},
                    ]
                }
            },
        ),
        (
            {"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "label": "x"}, {"label": "y"}]}]}},
            {"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "sizeMiB": 5}, {"label": "z"}]}]}},
            {
                "storage": {
                    "disks": [
                        {
                            "device": "/dev/a",
                            "partitions": [{"number": 1, "label": "x", "sizeMiB": 5}, {"label": "y"}, {"label": "z"}],
                        }
                    ]
                }
            },
        ),
        # A header without a value takes that of the parent away.
        (
            files({"path": "/a", "contents": {"httpHeaders": [{"name": "X", "value": "1"}, {"name": "Y"}]}}),
            files({"path": "/a", "contents": {"httpHeaders": [{"name": "X"}]}}),
            files({"path": "/a", "contents": {"httpHeaders": [{"name": "Y"}]}}),
        ),
    ],
)
def test_the_rules(parent: Config, child: Config, merged: Config) -> None:
    assert merge_ignition(parent, child) == merged


names = st.sampled_from(["/a", "/b", "/c"])
entries = st.lists(names, unique=True, max_size=3).map(lambda paths: [{"path": path} for path in paths])


def are_valid(config: Config) -> bool:
    """Return whether no path is in both lists."""
    return not {e["path"] for e in config.get("files", ())} & {e["path"] for e in config.get("links", ())}


configs = st.fixed_dictionaries({}, optional={"files": entries, "links": entries}).filter(are_valid)


@given(configs, configs)
def test_each_path_has_one_entry_and_the_child_decides_its_kind(parent: Config, child: Config) -> None:
    merged = merge_ignition(parent, child)
    kinds = [(entry["path"], name) for name, listed in merged.items() for entry in listed]
    assert len({path for path, _ in kinds}) == len(kinds)
    expected = {e["path"]: name for config in (parent, child) for name, listed in config.items() for e in listed}
    assert dict(kinds) == expected


@given(configs, configs, configs)
def test_the_merge_is_associative(first: Config, second: Config, third: Config) -> None:
    left = merge_ignition(merge_ignition(first, second), third)
    right = merge_ignition(first, merge_ignition(second, third))
    assert {name: sorted(map(str, listed)) for name, listed in left.items()} == {
        name: sorted(map(str, listed)) for name, listed in right.items()
    }
