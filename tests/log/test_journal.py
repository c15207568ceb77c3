# SPDX-License-Identifier: Apache-2.0
"""The journal's protocol, spoken to a real datagram socket."""

from __future__ import annotations

import array
import asyncio
import logging
import os
import socket
import struct
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent import log
from nodeagent.log.journal import Journal, frame, stderr_is_journal

STEP_DONE = "399aeac730b74c6b9176d3892cb51577"


def parse(data: bytes) -> dict[str, bytes]:
    """Parse a datagram as journald does."""
    out: dict[str, bytes] = {}
    while data:
        line, _, data = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack_from("<Q", data)
            value, data = data[8 : 8 + size], data[8 + size :]
            assert data[:1] == b"\n"
            data = data[1:]
        out[name.decode()] = value
    return out


class Journald:
    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(5)
        self.socket.bind(self.path)

    def receive(self) -> dict[str, bytes]:
        fds = array.array("i")
        data, control, _, _ = self.socket.recvmsg(1 << 20, socket.CMSG_LEN(fds.itemsize))
        for _, _, payload in control:
            fds.frombytes(payload)
        if fds:
            with os.fdopen(fds[0], "rb") as file:
                file.seek(0)
                data = file.read()
        return parse(data)


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[Journald]:
    server = Journald(tmp_path / "socket")
    yield server
    server.socket.close()


@pytest.fixture(autouse=True)
def restore_log() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    log.setup("warning", journal=None)
    logging.captureWarnings(False)
    logging.root.handlers[:], logging.root.level = handlers, level


def test_an_event_has_its_id_priority_and_fields(journald: Journald) -> None:
    log.setup("debug", journal=journald.path)
    log.event(
        STEP_DONE,
        "restarted crio.service",
        priority=log.DEBUG,
        update_id="u1",
        phase="Acting",
        step="restart crio.service",
        seconds=1.23456,
        index=3,
        reason="",
        current=None,
    )
    entry = journald.receive()
    assert entry.pop("CODE_FILE").endswith(b"test_journal.py")
    assert entry.pop("CODE_LINE").isdigit()
    assert entry.pop("CODE_FUNC") == b"test_an_event_has_its_id_priority_and_fields"
    assert entry == {
        "MESSAGE": b"restarted crio.service",
        "MESSAGE_ID": STEP_DONE.encode(),
        "PRIORITY": b"7",
        "SYSLOG_IDENTIFIER": b"nodeagent",
        "NODEAGENT_UPDATE_ID": b"u1",
        "NODEAGENT_PHASE": b"Acting",
        "NODEAGENT_STEP": b"restart crio.service",
        "NODEAGENT_SECONDS": b"1.235",
        "NODEAGENT_INDEX": b"3",
    }


@pytest.mark.finding(
    "secrets: names in errors", "The journal has the names of configs, paths and units, however long they are."
)
def test_names_are_in_the_journal(journald: Journald) -> None:
    config, unit = (
        "Rendered-Worker-Of-The-Second-Site-In-Frankfurt",
        "ACME_Vendor_Agent-For-All-Kinds-Of-Hardware.service",
    )
    log.setup("debug", journal=journald.path)
    text = f"reverting to {config}: {unit} failed (exit-code)"
    log.event(STEP_DONE, text, priority=log.DEBUG, desired="b", current=config, step=unit)
    entry = journald.receive()
    assert entry["MESSAGE"].decode() == text
    assert (entry["NODEAGENT_CURRENT"].decode(), entry["NODEAGENT_STEP"].decode()) == (config, unit)


def test_a_step_that_an_admin_notices_is_raised(journald: Journald) -> None:
    log.setup("info", journal=journald.path)
    log.event(STEP_DONE, "wrote /etc/x", priority=log.DEBUG)
    log.event(STEP_DONE, "restarted crio.service", priority=log.INFO)
    assert journald.receive()["MESSAGE"] == b"restarted crio.service"


def test_a_value_of_many_lines_is_framed(journald: Journald) -> None:
    log.setup("info", journal=journald.path)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.get("t").exception("two\nlines\n", unit="a.service")
    entry = journald.receive()
    assert entry["MESSAGE"] == b"two lines "  # words of others are on one line
    assert entry["NODEAGENT_TRACEBACK"].endswith(b"ValueError: two\nlines")
    assert entry["NODEAGENT_UNIT"] == b"a.service"


def test_a_large_entry_goes_through_a_sealed_memfd(journald: Journald) -> None:
    text = b"x\n" * (9 << 20)
    journal = Journal(journald.path)
    journal.send({"OUTPUT": text})
    assert journald.receive()["NODEAGENT_OUTPUT"] == text
    journal.close()


async def test_nothing_blocks_the_loop(journald: Journald) -> None:
    """The guard of conftest.py watches. The socket is not read, so it fills up."""
    journal = Journal(journald.path)
    for number in range(5000):
        journal.send({"MESSAGE": f"{number} " + "x" * 1000})
    journal.send({"MESSAGE": "x " * (4 << 20)})
    assert journal.dropped > 0
    journal.close()


def test_lost_entries_are_counted_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    journal = Journal(str(path))
    for _ in range(3):
        journal.send({"MESSAGE": "journald is restarting"})
    assert journal.dropped == 3
    server = Journald(path)
    journal.send({"MESSAGE": "back"})
    journal.send({"MESSAGE": "again"})
    assert server.receive() == {"MESSAGE": b"back", "NODEAGENT_DROPPED": b"3"}
    assert server.receive() == {"MESSAGE": b"again"}
    journal.close()
    server.socket.close()


def test_after_close_nothing_raises(journald: Journald) -> None:
    journal = Journal(journald.path)
    journal.close()
    journal.send({"MESSAGE": "late"})
    assert journal.dropped == 1


def test_no_secret_in_any_field(journald: Journald) -> None:
    log.setup("info", journal=journald.path)
    try:
        raise ValueError("core:$6$salt$abcdefgh")
    except ValueError:
        log.get("t").exception(
            'cannot use {"auth": "dXNlcjpwYXNz"}', password="hunter2", detail={"token": "tok-1"}, output=b"raw-secret"
        )
    whole = b"".join(journald.receive().values())
    for secret in (b"abcdefgh", b"dXNlcjpwYXNz", b"hunter2", b"tok-1", b"raw-secret"):
        assert secret not in whole
    assert b"ValueError" in whole


def test_other_libraries_and_warnings_end_here_too(journald: Journald) -> None:
    log.setup("info", journal=journald.path)
    logging.getLogger("dbus_next").error("gone: %s", "token=abcdef")
    entry = journald.receive()
    assert entry["MESSAGE"] == b"gone: token=[redacted]"
    assert entry["NODEAGENT_SOURCE"] == b"dbus_next"
    assert entry["PRIORITY"] == b"3"
    assert entry["CODE_FILE"].endswith(b"test_journal.py")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning("old", DeprecationWarning, "f.py", 1)
    assert b"old" in journald.receive()["MESSAGE"]


def test_an_unrenderable_entry_stops_no_other(journald: Journald) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError

    log.setup("info", journal=journald.path)
    log.get("t").info("hello", thing=Broken())
    assert journald.receive()["MESSAGE"] == b"lost a log entry: RuntimeError"


names = st.text(min_size=1, max_size=80)
values = st.one_of(st.text(max_size=200), st.binary(max_size=200))


@given(st.dictionaries(names, values, max_size=6))
def test_framing_is_understood_whatever_is_in_it(fields: dict[str, str | bytes]) -> None:
    parsed = parse(frame(fields))
    for name, value in parsed.items():
        assert name.isascii()
        assert name == name.upper()
        assert name[0].isalpha()
        assert len(name) <= 64
        sent = [v if isinstance(v, bytes) else v.encode("utf-8", "backslashreplace") for v in fields.values()]
        assert value in sent


def test_the_stream_of_systemd_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "stderr").open("w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        status = os.fstat(file.fileno())
        assert stderr_is_journal({"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
        assert not stderr_is_journal({"JOURNAL_STREAM": f"{status.st_dev}:1"})
        assert not stderr_is_journal({})


def test_no_stderr_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert not stderr_is_journal({"JOURNAL_STREAM": "1:1"})
    log.setup("info")
    log.get("t").error("this is not received")


async def test_entries_of_an_update_have_its_context(journald: Journald) -> None:
    """Also those of its threads, and those of other libraries; what an entry has itself comes first."""
    log.setup("info", journal=journald.path)
    with log.context(update_id="u1", phase="Waiting"):
        log.change_context(phase="Acting", other="is not there")
        await asyncio.to_thread(log.get("t").warning, "from a thread")
        logging.getLogger("library").warning("from a library")
        log.event(STEP_DONE, "of another phase", priority=log.INFO, phase="Reverting")
    log.change_context(phase="Acting")
    log.get("t").warning("afterwards")
    entries = [journald.receive() for _ in range(4)]
    assert [
        (entry["MESSAGE"], entry.get("NODEAGENT_UPDATE_ID"), entry.get("NODEAGENT_PHASE")) for entry in entries
    ] == [
        (b"from a thread", b"u1", b"Acting"),
        (b"from a library", b"u1", b"Acting"),
        (b"of another phase", b"u1", b"Reverting"),
        (b"afterwards", None, None),
    ]
    assert not any("NODEAGENT_OTHER" in entry for entry in entries)


def test_lines_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("info")
    fields = {"reason": "VerifyFailed", "step": "restart crio.service"}
    log.event("dc9303ab909a4400a5adf40a0faff680", "crio.service does not start", priority=log.ERROR, **fields)
    log.event(STEP_DONE, "unheard", priority=log.DEBUG)
    _, word, rest = capsys.readouterr().err.split(maxsplit=2)
    assert word == "error"
    assert rest.startswith("crio.service does not start  reason=VerifyFailed  step='restart crio.service'  hint=")
