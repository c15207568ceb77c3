# SPDX-License-Identifier: Apache-2.0
"""What an image brings beside its files, in an update: its kernel arguments and packages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeagent.core.plan.deployment import OsTarget
from nodeagent.core.plan.os_changes import PackageChange, PackageChangeKind
from nodeagent.errors import AgentError
from nodeagent.features.bootc.adapter import Bootc
from nodeagent.features.bootc.decide.kargs import KARGS
from tests.features.bootc.fake_ostree import FakeOstree
from tests.features.bootc.test_adapter import IMAGE, fails, stage, work
from tests.features.bootc.test_image import add
from tests.features.bootc.test_packages import header, write
from tests.host.ostree.fake_sysroot import A, B, FakeSysroot

pytestmark = pytest.mark.usefixtures("no_leaked_fds")

TARGET = OsTarget(image=IMAGE)
# After those of the booted deployment.
HOST = ("root=LABEL=root", "quiet")


def tree_of(host: FakeSysroot, checksum: str) -> Path:
    return next(host.root.glob(f"ostree/deploy/*/deploy/{checksum}.0"))


def give(host: FakeSysroot, before: Sequence[str] | None, after: Sequence[str] | None) -> None:
    """Give the images of A and B these arguments; None: no directory of them."""
    for tree, tokens in ((tree_of(host, A), before), (host.root / "ostree/repo" / B, after)):
        if tokens is not None:
            add(tree, f"{KARGS}/10-os.toml", f"kargs = {list(tokens)}\n")


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (None, None, HOST),
        (None, ["image=2"], (*HOST, "image=2")),
        (["quiet"], ["image=2"], ("root=LABEL=root", "image=2")),
        (["quiet"], ["quiet"], HOST),
        (["quiet"], None, HOST),
    ],
)
async def test_the_arguments_of_both_images_count(
    os: Bootc, host: FakeSysroot, before: list[str] | None, after: list[str] | None, line: tuple[str, ...]
) -> None:
    give(host, before, after)
    assert (await stage(os, TARGET)).kernel_arguments == line


async def test_the_config_has_the_last_word(os: Bootc, host: FakeSysroot) -> None:
    give(host, ["quiet"], ["nosmt", "image=2"])
    target = OsTarget(image=IMAGE, kernel_arguments=("quiet", "added=1"))
    assert (await stage(os, target)).kernel_arguments == ("root=LABEL=root", "nosmt", "image=2", "quiet", "added=1")


async def test_arguments_alone_leave_those_of_the_image(os: Bootc, host: FakeSysroot) -> None:
    give(host, ["image=1"], None)
    staged = await stage(os, OsTarget(kernel_arguments=("added=1",)))
    assert staged.kernel_arguments == (*HOST, "added=1")


async def test_an_image_whose_arguments_cannot_be_used(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    add(host.root / "ostree/repo" / B, f"{KARGS}/10-os.toml", "kargs = 7")
    error = await fails(os, AgentError, TARGET)
    assert (error.reason, host.staged) == ("ImageBroken", None)
    assert [command.partition(" ")[0] for command in work(ostree)] == ["container"], "nothing is deployed"


async def test_the_packages_that_change(os: Bootc, host: FakeSysroot) -> None:
    staged = await stage(os, TARGET)
    write(tree_of(host, A), header("bash", "5.1"))
    write(tree_of(host, B), header("bash", "5.2"))
    changes = await os.changes(staged.id, None)
    assert changes.packages == (PackageChange("bash", PackageChangeKind.UPGRADED, "5.1-1", "5.2-1"),)
    assert changes.files is None
