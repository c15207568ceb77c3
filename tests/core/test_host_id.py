# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nodeagent.core.host_id import APPLICATION, host_id
from tests.support.needs import needs


def test_the_id_is_a_uuid_that_hides_the_machine_id() -> None:
    machine = "8d2b5f0ad46c43a5a9a1c6b1a1b2c3d4"
    made = host_id(machine)
    assert len(made) == 32
    assert made[12] == "4"
    assert made[16] in "89ab"
    assert made != host_id("8d2b5f0ad46c43a5a9a1c6b1a1b2c3d5")


@needs("systemd-id128")
@pytest.mark.skipif(not Path("/etc/machine-id").is_file(), reason="this machine has no ID")
def test_systemd_makes_the_same_id() -> None:
    words = ["systemd-id128", "machine-id", "--app-specific", APPLICATION.hex]
    made = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    assert host_id(Path("/etc/machine-id").read_text().strip()) == made


@pytest.mark.parametrize("text", ["", "x", "8d2b"])
def test_what_is_no_machine_id(text: str) -> None:
    with pytest.raises(ValueError, match="badly formed"):
        host_id(text)
