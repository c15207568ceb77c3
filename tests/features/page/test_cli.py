# SPDX-License-Identifier: Apache-2.0
"""`nodeagent report`: from the daemon, and from the store while it does not run."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import fields
from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.host.fs import atomic
from nodeagent.host.store.opening import open_database
from nodeagent.reasons import Reason
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.record import Record
from tests.cli.daemon.conftest import Cli
from tests.cli.daemon.fake_daemon import FakeDaemon
from tests.features.page.samples import an_os, restarts


def test_the_page_is_written(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.answers["Update"] = json.dumps(an_os())
    answer = cli("report", "--html", str(tmp_path / "page.html"))
    assert answer.code == 0
    assert answer.out == f"wrote {tmp_path}/page.html, the update to b; open it in a browser\n"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert daemon.calls == [("Update", [""])]


def test_a_reboot_of_an_older_update_is_compared(cli: Cli, daemon: FakeDaemon) -> None:
    rebooted = an_os() | {"update_id": "rebooted"}
    updates = {"": restarts(), "rebooted": rebooted}
    daemon.answers["Update"] = lambda update_id: json.dumps(updates[update_id])
    daemon.history = [restarts(), rebooted]
    answer = cli("report", "--html", "-")
    assert answer.code == 0
    assert "measured in the update to b" in answer.out


def test_an_unknown_update(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["Update"] = InvalidInput("the update x is not in the history", reason=Reason.NO_SUCH_UPDATE)
    assert cli("report", "x", "--html", "-").code == 2


def test_a_file_that_cannot_be_written(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.answers["Update"] = json.dumps(an_os())
    (tmp_path / "target").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("link", "missing/page.html", "."):
        answer = cli("report", "--html", str(tmp_path / name))
        assert answer.code == 2
        assert "cannot write" in answer.err
    assert (tmp_path / "target").read_text() == "kept"


def test_it_is_read_from_the_store_without_the_daemon(cli: Cli, tmp_path: Path) -> None:
    known = {field.name for field in fields(HistoryEntry)}
    with open_database(tmp_path / "state/state.db") as database:
        database.close_update(Record(), HistoryEntry(**{k: v for k, v in an_os().items() if k in known}))
    answer = cli("report", "84af", "--html", "-")
    assert answer.code == 0
    assert "out of service 49.9 s" in answer.out
    assert cli("report", "85", "--html", "-").code == 2


def test_a_full_disk_leaves_the_previous_page(
    cli: Cli, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.answers["Update"] = json.dumps(an_os())
    path = tmp_path / "pages" / "page.html"
    path.parent.mkdir()
    assert cli("report", "--html", str(path)).code == 0
    page = path.read_bytes()

    def full(*_: object, **_words: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for broken in ("write", "fsync", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(atomic.os, broken, full)
            answer = cli("report", "--html", str(path))
        assert answer.code == 2
        assert f"CannotWrite: cannot write {path}: No space left on device" in answer.err
        assert (path.read_bytes(), os.listdir(path.parent)) == (page, ["page.html"])


def test_a_device_is_written_to_and_its_error_is_reported(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["Update"] = json.dumps(an_os())
    assert cli("report", "--html", "/dev/null").code == 0
    answer = cli("report", "--html", "/dev/full")
    assert (answer.code, "No space left on device" in answer.err) == (2, True)


def test_the_page_is_as_private_as_the_umask_says(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.answers["Update"] = json.dumps(an_os())
    before = os.umask(0o077)
    try:
        assert cli("report", "--html", str(tmp_path / "page.html")).code == 0
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == 0o600
