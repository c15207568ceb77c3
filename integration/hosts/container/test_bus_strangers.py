# SPDX-License-Identifier: Apache-2.0
"""Attacks of an unprivileged user on the daemon over the system bus of a real host."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config, outcomes, wait_done
from nodeagent.host.dbus.header import HEADER_SIZE, MessageKind, frame_size, read_header
from tests.support.wire import FACE, NOBODY, array_of_variants, connect_as, hello, message

SOCKET = Path("/run/dbus/system_bus_socket")
LARGE = 30 << 20  # bytes: nearly what the system bus lets through
CPU = 2.0  # seconds of the daemon for a message of that size; to decode it takes 25
MEMORY_MB = 120  # of the daemon at its most; to decode it takes 1,100


@contextlib.contextmanager
def unprivileged(host: Host) -> Iterator[socket.socket]:
    root = Path(f"/proc/{host.container.leader}/root")
    with connect_as(NOBODY, SOCKET, root) as sock:
        sock.settimeout(120)
        sock.sendall(hello())
        yield sock


def until_reply(sock: socket.socket, serial: int) -> Iterator[tuple[int, str]]:
    """Serial and error of every reply, until the one to that call, which must be no error."""
    buffer = bytearray()
    while data := sock.recv(1 << 16):
        buffer += data
        while len(buffer) >= HEADER_SIZE and len(buffer) >= (size := frame_size(buffer)):
            reply = read_header(buffer)
            del buffer[:size]
            if reply.reply_serial == serial:
                assert reply.kind is MessageKind.RETURN
                return
            if reply.reply_serial:
                yield reply.reply_serial, reply.error_name
    raise AssertionError("the bus closed the connection")


def main_pid(host: Host) -> str:
    return host.unit(agent.UNIT, "MainPID")["MainPID"]


def cpu_seconds(host: Host) -> float:
    stat = host.read_text(f"/proc/{main_pid(host)}/stat").rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / 100


def peak_mb(host: Host) -> int:
    status = host.read_text(f"/proc/{main_pid(host)}/status")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) // 1024


@pytest.mark.finding(
    "daemon: hostile messages", "A 30 MB message of any user costs the daemon no memory and no time, whatever it holds."
)
def test_a_message_of_thirty_megabytes(node: Host) -> None:
    body = array_of_variants(LARGE)
    before, pid = cpu_seconds(node), main_pid(node)
    for kind in (1, 4):  # A call, and an unsolicited signal.
        with unprivileged(node) as stranger:
            large = message(kind, agent.NAME, "Apply", "av", body)
            # The bus takes seconds to check it. What was sent after it arrives after it.
            ping = message(1, agent.NAME, "Ping", "", b"", interface="org.freedesktop.DBus.Peer")
            stranger.sendall(large)
            stranger.sendall(ping)
            replies = dict(until_reply(stranger, read_header(ping).serial))
            error = "org.freedesktop.DBus.Error.InvalidArgs" if kind == 1 else None
            assert replies.get(read_header(large).serial) == error
        assert agent.status(node)["phase"] == "Idle"
    spent = cpu_seconds(node) - before
    print(f"daemon: {spent:.2f} s of processor time, {peak_mb(node)} MB at its most")
    assert spent < CPU
    assert peak_mb(node) < MEMORY_MB
    assert main_pid(node) == pid
    assert node.unit(agent.UNIT, "NRestarts")["NRestarts"] == "0"


@pytest.mark.long
@pytest.mark.finding("daemon: places for root", "Calls of others that wait for polkit leave slots for root.")
def test_calls_that_wait_for_polkit_leave_room_for_root(node: Host) -> None:
    """A polkit that does not answer keeps every call of others waiting."""
    node.run(["systemctl", "start", "polkit.service"])
    node.run(["systemctl", "kill", "--signal=STOP", "polkit.service"])
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(10):
                stranger = stack.enter_context(unprivileged(node))
                stranger.sendall(b"".join(message(1, agent.NAME, "Verify", "", b"", interface=FACE) for _ in range(8)))
            time.sleep(0.5)
            agent.apply(node, machine_config("one", files={"/etc/quiet": "1"}))
            wait_done(node, "one")
            assert json.loads(node.run(["nodeagent", "verify", "--json"]).stdout)["ok"]
    finally:
        node.run(["systemctl", "kill", "--signal=CONT", "polkit.service"])
    assert outcomes(node) == [("one", "done")]
