# SPDX-License-Identifier: Apache-2.0
"""The example of docs/usage/write-a-config.md, translated by the real Butane."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from integration.cluster import programs
from integration.hosts.errors import Unavailable
from integration.package.conftest import cannot
from nodeagent.core.config.ignition_document import as_machine_config
from nodeagent.core.config.parse import parse
from tests.test_write_a_config import block, ignition

pytestmark = pytest.mark.long

TIMEOUT = 120.0  # seconds


@pytest.fixture(scope="module")
def butane() -> Path:
    try:
        (program,) = programs.fill(programs.PROVISIONING_MODULE, print)
    except Unavailable as error:
        cannot(f"butane cannot be built here: {error}")
    return program


@pytest.mark.parametrize("variant", ["fcos", "openshift"])
def test_the_example(butane: Path, tmp_path: Path, variant: str) -> None:
    """For Fedora CoreOS an Ignition config, for OpenShift a MachineConfig, with the same entries."""
    text = "\n".join(block("This is `host.bu`"))
    if variant == "openshift":
        labels = "{machineconfiguration.openshift.io/role: worker}"
        metadata = f"metadata:\n  name: 99-site\n  labels: {labels}\n"
        text = text.replace("variant: fcos\nversion: 1.4.0\n", f"variant: openshift\nversion: 4.14.0\n{metadata}")
    (tmp_path / "host.bu").write_text(text)
    done = subprocess.run(
        [butane, "--strict", "host.bu"], cwd=tmp_path, capture_output=True, check=True, timeout=TIMEOUT
    )
    config, wanted = (parse(as_machine_config(each)) for each in (done.stdout, json.dumps(ignition()).encode()))
    assert (config.files, config.users) == (wanted.files, wanted.users)
    assert config.pool == ("worker" if variant == "openshift" else "")
