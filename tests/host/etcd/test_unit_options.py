# SPDX-License-Identifier: Apache-2.0
"""The options of a member that is a unit: from its unit, environment and config file, and after these have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nodeagent.host.etcd.detect import REMEMBERED, _at_start, detect
from nodeagent.host.etcd.options import endpoints
from tests.host.etcd.test_detect import process, put, untraceable

__all__ = ["untraceable"]

UNITS = "etc/systemd/system"
CONFIG = "etc/etcd/member.yaml"
# Seconds from the boot of this machine to the start of etcd.
STARTED = 9_000


def enabled(root: Path, text: str, directory: str = UNITS) -> None:
    written(root, f"{directory}/etcd.service", text, before=True)
    wants = root / UNITS / "multi-user.target.wants"
    wants.mkdir(parents=True)
    (wants / "etcd.service").symlink_to("../etcd.service")


def member(root: Path, *words: str, number: int = 77) -> None:
    """A process that started at ``STARTED``."""
    process(root, number, *words)
    ticks = STARTED * os.sysconf("SC_CLK_TCK")
    # The name of a process may have blanks and parentheses.
    put(root, f"proc/{number}/stat", f"{number} (etcd) x) S {' '.join('0' * 18)} {ticks} {' '.join('0' * 30)}\n")


def written(root: Path, path: str, text: str, *, before: bool) -> None:
    """Write a file before or after the process of ``member`` started."""
    put(root, path, text)
    boot = time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_BOOTTIME)
    moment = boot + STARTED + (-60 if before else 60)
    os.utime(root / path, (moment, moment))


def clients(root: Path) -> list[str]:
    found = detect(root)
    assert found is not None
    return list(endpoints(found.options).ours)


@pytest.mark.parametrize(
    "text",
    [
        "[Service]\nExecStart=-/opt/etcd --listen-client-urls=http://10.0.0.3:2379 --name a%H\n",
        "[Service]\nExecStart=/opt/etcd --config-file=/etc/etcd/member.yaml\n",
        "[Service]\nEnvironment=ETCD_CONFIG_FILE=/etc/etcd/member.yaml\nExecStart=/opt/etcd\n",
        '[Service]\nEnvironment="ETCD_LISTEN_CLIENT_URLS=http://10.0.0.3:2379" ETCD_NAME=%H\nExecStart=/opt/etcd\n',
        "[Service]\nEnvironmentFile=-/etc/etcd/other.env\nExecStart=/opt/etcd\n",
        "[Service]\nEnvironmentFile=/etc/etcd/other.env\nExecStart=/bin/sh -c 'GOMAXPROCS=2 /usr/bin/etcd'\n",
    ],
)
def test_a_unit_that_does_not_run_names_its_addresses(tmp_path: Path, text: str) -> None:
    put(tmp_path, CONFIG, "listen-client-urls: http://10.0.0.3:2379\n")
    put(tmp_path, "etc/etcd/other.env", "ETCD_LISTEN_CLIENT_URLS=http://10.0.0.3:2379\n")
    enabled(tmp_path, text)
    assert clients(tmp_path) == ["http://10.0.0.3:2379"]
    found = detect(tmp_path)
    assert found is not None
    # systemd expands the specifier.
    assert found.options.get("name") == ""


def test_a_drop_in_has_the_last_word(tmp_path: Path) -> None:
    start = "[Service]\nExecStart=\nExecStart=/opt/etcd --listen-client-urls"
    enabled(tmp_path, f"{start}=http://10.0.0.3:2379\n", "usr/lib/systemd/system")
    put(tmp_path, f"{UNITS}/etcd.service.d/10-x.conf", f"{start} http://10.0.0.4:2379\n")
    assert clients(tmp_path) == ["http://10.0.0.4:2379"]


def test_the_environment_of_the_unit_is_that_of_a_process_that_cannot_be_inspected(
    tmp_path: Path, untraceable: None
) -> None:
    text = "[Service]\nEnvironment=ETCD_LISTEN_CLIENT_URLS=http://10.0.0.3:2379\nExecStart=/opt/etcd --name=a\n"
    put(tmp_path, f"{UNITS}/etcd.service", text)
    member(tmp_path, "/opt/etcd", "--name=a")
    assert clients(tmp_path) == ["http://10.0.0.3:2379"]


@pytest.mark.parametrize("change", ["listen-client-urls: http://10.0.0.4:2379\n", None])
def test_a_process_keeps_the_options_with_which_it_started(
    tmp_path: Path, untraceable: None, change: str | None
) -> None:
    """A config has changed or removed the file, and the restart or stop of the unit is still to come."""
    enabled(tmp_path, "[Service]\nExecStart=/opt/etcd --config-file=/etc/etcd/member.yaml\n")
    written(tmp_path, CONFIG, "listen-client-urls: http://10.0.0.3:2379\n", before=True)
    member(tmp_path, "/opt/etcd", "--config-file=/etc/etcd/member.yaml")
    assert clients(tmp_path) == ["http://10.0.0.3:2379"]
    if change is None:
        (tmp_path / CONFIG).unlink()
    else:
        written(tmp_path, CONFIG, change, before=False)
    assert clients(tmp_path) == ["http://10.0.0.3:2379"]


def test_a_new_process_has_the_new_options(tmp_path: Path, untraceable: None) -> None:
    written(tmp_path, CONFIG, "listen-client-urls: http://10.0.0.3:2379\n", before=True)
    member(tmp_path, "/opt/etcd", "--config-file=/etc/etcd/member.yaml")
    assert clients(tmp_path) == ["http://10.0.0.3:2379"]
    (tmp_path / "proc/77").rename(tmp_path / "ended")
    written(tmp_path, CONFIG, "listen-client-urls: http://10.0.0.4:2379\n", before=True)
    member(tmp_path, "/opt/etcd", "--config-file=/etc/etcd/member.yaml", number=78)
    assert clients(tmp_path) == ["http://10.0.0.4:2379"]


def test_files_that_are_newer_than_the_process_are_not_remembered(tmp_path: Path, untraceable: None) -> None:
    """The agent started while an update was half-way, which is then reverted."""
    written(tmp_path, CONFIG, "listen-client-urls: http://10.0.0.4:2379\n", before=False)
    member(tmp_path, "/opt/etcd", "--config-file=/etc/etcd/member.yaml")
    assert clients(tmp_path) == ["http://10.0.0.4:2379"]
    written(tmp_path, CONFIG, "listen-client-urls: http://10.0.0.3:2379\n", before=False)
    assert clients(tmp_path) == ["http://10.0.0.3:2379"]


def test_a_config_file_that_is_gone_is_not_remembered(tmp_path: Path, untraceable: None) -> None:
    member(tmp_path, "/opt/etcd", "--config-file=/etc/etcd/member.yaml")
    assert clients(tmp_path) == ["http://127.0.0.1:2379"]
    written(tmp_path, CONFIG, "listen-client-urls: http://10.0.0.3:2379\n", before=False)
    assert clients(tmp_path) == ["http://10.0.0.3:2379"]


def test_few_processes_are_remembered(tmp_path: Path, untraceable: None) -> None:
    for number in range(100, 100 + 2 * REMEMBERED):
        member(tmp_path, "/opt/etcd", "--listen-client-urls=http://10.0.0.3:2379", number=number)
    assert clients(tmp_path) == ["http://10.0.0.3:2379"]
    assert len(_at_start) <= REMEMBERED
