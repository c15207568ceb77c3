# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from nodeagent.features.fence.actuators.object_fsync import with_object_fsync

REPO = '[core]\nrepo_version=1\nmode=bare\n\n[remote "fedora"]\nurl=https://example.org\nper-object-fsync=false\n'


def test_it_is_added_to_the_core_section_alone() -> None:
    assert with_object_fsync(REPO) == REPO.replace("[core]\n", "[core]\nper-object-fsync=true\n")


@pytest.mark.parametrize("old", ["per-object-fsync=false", " per-object-fsync = no ", "per-object-fsync="])
def test_what_says_otherwise_is_replaced(old: str) -> None:
    text = f"[core]\nmode=bare\n{old}\n[ex-integrity]\nfsverity=opportunistic\n"
    assert with_object_fsync(text) == (
        "[core]\nper-object-fsync=true\nmode=bare\n[ex-integrity]\nfsverity=opportunistic\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "[core]\nmode=bare\nper-object-fsync=true\n",
        "[core]\nper-object-fsync = 1\n",
        "[core]\nfsync=false\n",
        "",
        "[sysroot]\nreadonly=true\n",
    ],
)
def test_nothing_to_do(text: str) -> None:
    assert with_object_fsync(text) is None


def test_twice_is_once() -> None:
    once = with_object_fsync(REPO)
    assert once is not None
    assert with_object_fsync(once) is None
