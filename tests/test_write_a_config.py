# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/usage/write-a-config.md, as far as they need no other program: butane is in the long part of
the tests of the package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from nodeagent.core.config.parse import parse
from tests.cli.conftest import machine_config, write

PAGE = Path(__file__).parents[1] / "docs/usage/write-a-config.md"
# `oc get mc` for a cluster whose MachineConfigs are files of $CLUSTER.
OC = """\
#!/bin/sh -eu
[ "$1" = get ]
if [ "$2" = mc ]; then
  [ "$3 $4" = "-l machineconfiguration.openshift.io/role=worker" ]
  ls "$CLUSTER" | sed -n 's|\\.json$||; s|^|machineconfig.machineconfiguration.openshift.io/|p'
else
  cat "$CLUSTER/$(basename "$2").json"
fi
"""


def block(begin: str, *, last: bool = False) -> list[str]:
    """Return the lines of the first block after the text ``begin``, or of the last one."""
    blocks = re.findall(r"\n\n((?:    .*\n|\n(?=    ))+)", PAGE.read_text().partition(begin)[2])
    assert blocks, begin
    return [line.removeprefix("    ") for line in blocks[-1 if last else 0].splitlines()]


def run(command: str, where: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the page. ``nodeagent`` is that of the tests."""
    bin_directory = where / "bin"
    bin_directory.mkdir(exist_ok=True)
    (bin_directory / "nodeagent").write_text(f'#!/bin/sh\nexec {sys.executable} -m nodeagent "$@"\n')
    (bin_directory / "oc").write_text(OC)
    for program in bin_directory.iterdir():
        program.chmod(0o755)
    path = f"{bin_directory}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-euc", command.replace("planner/bin/", "")],
        cwd=where,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(PAGE.parents[2]), **env},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


def ignition() -> dict[str, Any]:
    """What butane makes of the example."""
    butane = yaml.safe_load("\n".join(block("This is `host.bu`")))
    assert (butane["variant"], butane["version"]) == ("fcos", "1.4.0")
    (user,) = butane["passwd"]["users"]
    files = [
        {"path": entry["path"], "contents": {"source": f"data:,{quote(entry['contents']['inline'])}"}}
        for entry in butane["storage"]["files"]
    ]
    return {
        "ignition": {"version": "3.3.0"},
        "passwd": {"users": [{"name": user["name"], "sshAuthorizedKeys": user["ssh_authorized_keys"]}]},
        "storage": {"files": files},
    }


@pytest.fixture
def nothing(tmp_path: Path) -> Path:
    path = tmp_path / "nothing.yaml"
    path.write_text("\n".join(block("an empty one", last=True)))
    return path


def test_the_first_config_of_a_host(tmp_path: Path, nothing: Path) -> None:
    write(tmp_path / "host.ign", ignition())
    planned = run("nodeagent plan --from nothing.yaml --to host.ign --json", tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert [change["key"] for change in json.loads(planned.stdout)["changes"]] == ["/etc/sysctl.d/90-site.conf", "core"]


@pytest.mark.long
def test_those_of_a_cluster(tmp_path: Path, nothing: Path) -> None:
    (cluster := tmp_path / "cluster").mkdir()
    for name in ("00-worker", "99-worker-chrony"):
        document = machine_config(name, {f"/etc/{name}": b"", "/etc/both": name.encode()})
        document["metadata"]["labels"] = {"machineconfiguration.openshift.io/role": "worker"}
        write(cluster / f"{name}.json", document)
    *fetch, plan = block("## From an OpenShift cluster")
    assert plan == "nodeagent plan configs"
    assert (done := run("\n".join(fetch), tmp_path, CLUSTER=str(cluster))).returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "configs").iterdir()) == ["00-worker.yaml", "99-worker-chrony.yaml"]
    merged = run("nodeagent render configs", tmp_path)
    assert parse(merged.stdout.encode()).files["/etc/both"].content == b"99-worker-chrony"
    # The commands of a CI job, with a change that restarts nothing, and one that reboots.
    wheel, venv, *_pip, render, planned = block("## On a laptop")
    assert (wheel.split()[:2], venv.split()[:3]) == (["make", "wheel"], ["python3", "-m", "venv"])
    assert run(render, tmp_path).returncode == 0
    (tmp_path / "main").mkdir()
    assert run("cp -r configs main/", tmp_path).returncode == 0
    assert run(planned, tmp_path).returncode == 0
    write(tmp_path / "configs/kargs.json", machine_config("99-kargs", {}, kernelArguments=["nosmt"]))
    refused = run(planned, tmp_path)
    assert (refused.returncode, "DisruptionExceeded" in refused.stderr) == (4, True)
    (tmp_path / "configs/kargs.json").write_text("{}")
    assert run(planned, tmp_path).returncode == 2
    disks = {"storage": {"disks": [{"device": "/dev/vda"}]}}
    write(tmp_path / "configs/kargs.json", machine_config("99-disks", {}, ignition=disks))
    assert run(planned, tmp_path).returncode == 3
