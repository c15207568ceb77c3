# SPDX-License-Identifier: Apache-2.0
"""Who changed a path: from records of the audit log, and from a process that names it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.features.drift.culprits import HostCulprits, audited, described
from nodeagent.host.clock import SystemClock

NOW = 1700000100.0
LOG = b"""\
type=SYSCALL msg=audit(1700000099.100:10): syscall=257 ppid=1 pid=812 auid=4294967295 uid=0 comm="chef-client"
type=PATH msg=audit(1700000099.100:10): item=0 name="/etc/" inode=1 nametype=PARENT
type=PATH msg=audit(1700000099.100:10): item=1 name="/etc/x" inode=2 nametype=NORMAL
type=SYSCALL msg=audit(1700000099.200:11): syscall=82 pid=99 auid=4294967295 comm="nodeagent"
type=PATH msg=audit(1700000099.200:11): item=1 name="/etc/x" nametype=CREATE
type=SYSCALL msg=audit(1600000000.000:1): syscall=82 pid=7 auid=1000 comm="old"
type=PATH msg=audit(1600000000.000:1): item=1 name="/etc/y" nametype=CREATE
type=SYSCALL msg=audit(1700000099.300:12): syscall=82 pid=13 auid=4294967295 comm=612062
type=PATH msg=audit(1700000099.300:12): item=1 name=2F6574632F7A207A nametype=CREATE
garbage
type=PATH msg=audit(1700000099.400:13): item=1 name="/etc/w" nametype=CREATE
"""


def test_records_of_the_audit_log() -> None:
    found = audited(LOG, ["/etc/x", "/etc/y", "/etc/z z", "/etc/w"], since=NOW - 15, own=99)
    assert found == {"/etc/x": "chef-client, pid 812", "/etc/z z": "a b, pid 13"}


def test_a_login_has_a_name() -> None:
    assert described("vim", 7, 0) == "vim, pid 7, login root"
    assert described("vim", 7, 4242424) == "vim, pid 7, login uid 4242424"


@pytest.mark.parametrize("form", ["{}", "--file={}"])
async def test_a_process_that_names_the_path(tmp_path: Path, form: str) -> None:
    path = str(tmp_path / "content")
    culprits = HostCulprits(SystemClock(), audit_log=tmp_path / "missing")
    arguments = [sys.executable, "-c", "import time; time.sleep(60)", form.format(path)]
    process = await asyncio.create_subprocess_exec(*arguments)
    try:
        found = await culprits.of([path, "/etc/other"])
        assert list(found) == [path]
        assert f"pid {process.pid}" in found[path]
    finally:
        process.kill()
        await process.wait()
    assert await culprits.of([path]) == {}


async def test_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    recent = LOG.replace(b"1700000099", str(int(parse_time(SystemClock().now()) or 0)).encode())
    log.write_bytes(b"x" * (2 << 20) + b"\n" + recent)
    found = await HostCulprits(SystemClock(), log).of(["/etc/x"])
    assert found["/etc/x"].endswith("pid 99" if os.getpid() != 99 else "pid 812")
