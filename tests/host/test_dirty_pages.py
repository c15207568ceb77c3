"""What may wait in memory to be written to a disk: bounded, and put back, whenever the agent is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.core.disks import DeviceNumber
from nodeagent.errors import AgentError, Terminal
from nodeagent.host.dirty_pages import BDIS, DirtyPages, recover
from nodeagent.host.undo import FileUndo

NUMBER = DeviceNumber(254, 0)
FOUND = {"max_ratio_fine": "1000000\n", "max_bytes": "4246286336\n", "strict_limit": "0\n"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "bdi" / str(NUMBER)
    directory.mkdir(parents=True)
    for name, text in FOUND.items():
        (directory / name).write_text(text)
    return directory.parent


@pytest.fixture
def undo(tmp_path: Path) -> FileUndo:
    return FileUndo(tmp_path / "undo")


def state(root: Path) -> dict[str, str]:
    return {name: (root / str(NUMBER) / name).read_text().strip() for name in FOUND}


async def test_bounded_and_put_back(root: Path, undo: FileUndo) -> None:
    pages = DirtyPages(NUMBER, undo, root)
    await pages.restore()
    assert state(root) == {name: text.strip() for name, text in FOUND.items()}, "nothing, without a bound"
    await pages.bound(2 << 20)
    assert state(root) == {"max_ratio_fine": "1000000", "max_bytes": "2097152", "strict_limit": "1"}
    (root / str(NUMBER) / "max_ratio_fine").write_text("7")  # as the kernel keeps it
    await pages.bound(2 << 20)
    await pages.restore()
    assert (state(root)["max_ratio_fine"], state(root)["strict_limit"]) == ("1000000", "0")
    assert not await undo.load()


async def test_what_a_killed_agent_left_is_put_back(root: Path, undo: FileUndo) -> None:
    await DirtyPages(NUMBER, undo, root).bound(2 << 20)
    await undo.save("queue-254:0", "of somebody else")
    await recover(undo, root)
    assert state(root)["strict_limit"] == "0"
    assert list(await undo.load()) == ["queue-254:0"]


async def test_a_kernel_that_cannot(root: Path, undo: FileUndo) -> None:
    (root / str(NUMBER) / "strict_limit").unlink()
    with pytest.raises(AgentError) as caught:
        await DirtyPages(NUMBER, undo, root).bound(2 << 20)
    assert caught.value.reason == "NoDirtyLimit"
    assert not await undo.load()


async def test_a_disk_that_is_gone_needs_nothing(root: Path, undo: FileUndo) -> None:
    pages = DirtyPages(NUMBER, undo, root)
    await pages.bound(2 << 20)
    (root / str(NUMBER)).rename(root / "253:7")
    await pages.restore()
    assert not await undo.load()


@pytest.mark.parametrize("note", ["", "{}", "[]", '{"max_ratio_fine": "../x", "strict_limit": "0"}'])
async def test_a_note_that_cannot_be_read_writes_nothing(root: Path, undo: FileUndo, note: str) -> None:
    await undo.save(f"dirty-{NUMBER}", note)
    before = state(root)
    with pytest.raises(AgentError) as caught:
        await recover(undo, root)
    assert caught.value.reason == "QueueNotRestored"
    assert state(root) == before


async def test_a_kernel_that_takes_nothing_back_is_told(
    root: Path, undo: FileUndo, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = DirtyPages(NUMBER, undo, root)
    await pages.bound(2 << 20)
    monkeypatch.setattr(pages, "_write", lambda _values: None)
    with pytest.raises(AgentError) as caught:
        await pages.restore()
    assert caught.value.reason == "QueueNotRestored"
    assert await undo.load(), "and can be tried again"


async def test_where_nothing_may_be_written_nothing_is_noted(
    root: Path, undo: FileUndo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_values: dict[str, str]) -> None:
        raise Terminal("read-only", reason="ReadOnly")

    pages = DirtyPages(NUMBER, undo, root)
    monkeypatch.setattr(pages, "_write", refused)
    with pytest.raises(AgentError) as caught:
        await pages.bound(2 << 20)
    assert caught.value.reason == "ReadOnly"
    assert not await undo.load()


async def test_a_real_disk(loop_device: str, undo: FileUndo) -> None:
    directory = BDIS / loop_device
    if not (directory / "strict_limit").exists():
        pytest.skip("this kernel cannot bound the dirty pages of a disk (Linux 6.2)")

    def now() -> list[str]:
        return [(directory / name).read_text() for name in ("max_ratio_fine", "max_ratio", "strict_limit")]

    before = now()
    major, _, minor = loop_device.partition(":")
    await DirtyPages(DeviceNumber(int(major), int(minor)), undo).bound(2 << 20)
    assert (directory / "strict_limit").read_text().strip() == "1"
    # Kept as a part of what may be dirty at all, and shown as what that comes to with the memory of this moment.
    assert 1 << 20 < int((directory / "max_bytes").read_text()) < 3 << 20
    assert now() != before
    await recover(undo)  # by number alone, as after a kill
    assert now() == before
