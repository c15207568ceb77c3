# SPDX-License-Identifier: Apache-2.0
"""The planner of docs/usage/write-a-config.md: the wheel by `make wheel`, in an environment that has nothing else,
installed and used by a user without privileges, and both without a network. Only the download has one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.package.conftest import SOURCE, cannot
from integration.package.test_install_pages import commands

pytestmark = pytest.mark.long

TIMEOUT = 300.0  # seconds
PAGE = SOURCE / "docs/usage/write-a-config.md"
NOBODY = 65534
PYTHON = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    """A directory with what `make wheel` writes to dist/."""
    try_user = ["unshare", "--user", "--net", "true"]
    if subprocess.run(try_user, check=False, capture_output=True, timeout=TIMEOUT).returncode:
        cannot("the kernel of this machine allows no user namespaces")
    (tmp_path / "dist").mkdir()
    make = ["make", "--silent", "-C", str(SOURCE), "wheel"]
    subprocess.run(make, check=True, capture_output=True, timeout=TIMEOUT)
    for path in (*(SOURCE / "dist").glob("nodeagent-*.whl"), SOURCE / "dist/requirements.txt"):
        shutil.copy(path, tmp_path / "dist")
    return tmp_path


def run(laptop: Path, command: str, *, network: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command of the page as the user."""
    # In a user namespace: it has no capability, and still reads the Python of the tests in a folder of root.
    user = ["unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", *([] if network else ["--net"])]
    return subprocess.run(
        [*user, "sh", "-euc", command],
        cwd=laptop,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HOME": str(laptop)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def test_the_wheel_plans_without_root_and_without_a_network(laptop: Path) -> None:
    make, venv, *install, render, plan = commands("## On a laptop", PAGE)
    assert make == "make wheel"
    (download,) = commands("one that has the same Python", PAGE)
    # Not that of the environment of the tests, which may be in a folder of root.
    done = run(laptop, venv.replace("python3", PYTHON))
    assert done.returncode == 0, done.stderr
    if (done := run(laptop, download, network=True)).returncode:
        cannot(f"the packages cannot be downloaded here: {done.stderr.strip()[-300:]}")
    assert run(laptop, f"{venv} --clear".replace("python3", PYTHON)).returncode == 0
    for command in install:
        offline = command.replace("pip install", "pip install --no-index --find-links wheels")
        done = run(laptop, offline)
        assert done.returncode == 0, done.stderr
    assert len(list((laptop / "wheels").iterdir())) == 6

    (laptop / "configs").mkdir()
    (laptop / "configs/00-worker.yaml").write_text(agent.machine_config("00-worker", files={"/etc/a.conf": "a"}))
    shutil.copytree(laptop / "configs", laptop / "main/configs")
    done = run(laptop, render)
    assert done.returncode == 0, done.stderr
    done = run(laptop, f"{plan} --json")
    assert (done.returncode, json.loads(done.stdout)["changes"]) == (0, []), done.stderr
    kernel = agent.machine_config("99-kernel", kernelArguments=["nosmt"])
    (laptop / "configs/99-kernel.yaml").write_text(kernel)
    done = run(laptop, plan)
    assert (done.returncode, "DisruptionExceeded" in done.stderr) == (4, True)
    done = run(laptop, "planner/bin/nodeagent explain DisruptionExceeded")
    assert done.returncode == 0, done.stderr
    # What the daemon needs is said, not shown as a traceback.
    for command in ("status", "run", "selfcheck"):
        done = run(laptop, f"planner/bin/nodeagent {command}")
        assert done.returncode != 0
        assert "Traceback" not in done.stderr, done.stderr
