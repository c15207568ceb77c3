# SPDX-License-Identifier: Apache-2.0
"""The checks of a kubelet configuration with the dry run of the real kubelet: no host is booted for them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from integration.hosts.node.node_programs import NodePrograms
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.errors import Problem
from nodeagent.host.checkers import HostValidator, job

CONF: Final = "/etc/kubernetes/kubelet.conf"
DROPIN: Final = "/etc/kubernetes/kubelet.conf.d/10.conf"
UNIT: Final = "/usr/lib/systemd/system/kubelet.service"

Check = Callable[..., Any]


def document(*, typed: bool = True, **keys: Any) -> bytes:
    kind = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"} if typed else {}
    return json.dumps({**kind, "failCgroupV1": False, **keys}).encode()


@pytest.fixture
def check(programs: NodePrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Returns the problems of the new files on a host with the kubelet and its unit."""
    # Others use /run at the same time.
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr(job, "TMPFS", (private,))
    unit = tmp_path / UNIT.lstrip("/")
    unit.parent.mkdir(parents=True)
    flags = "--node-ip=10.77.0.10 --hostname-override=worker --kubeconfig=/var/lib/kubelet/kubeconfig --v=2"
    places = f"--config={CONF} --config-dir={Path(DROPIN).parent}"
    unit.write_text(f"[Service]\nExecStart={programs.program('kubelet')} {places} {flags}\n")
    # The program is named by its path on this machine, which the root of the test leads to.
    program = tmp_path / str(programs.program("kubelet")).lstrip("/")
    program.parent.mkdir(parents=True)
    program.symlink_to(programs.program("kubelet"))

    async def run(new: dict[str, bytes], old: dict[str, bytes] | None = None) -> tuple[Problem, ...]:
        sides = [
            MachineConfig("", {path: FileEntry(path, content) for path, content in files.items()})
            for files in (old or {CONF: document()}, new)
        ]
        began = time.monotonic()
        found = await HostValidator(root=tmp_path).check(*sides)
        print(f"{time.monotonic() - began:.2f} s: {found}")
        assert not list(private.iterdir())
        return found

    return run


YAML: Final = b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n"
GOOD: Final = {CONF: document(maxPods=200), DROPIN: document(maxPods=201, logging={"verbosity": 4})}

# What the kubelet says of each candidate, and the path that is to blame.
TABLE: Final[dict[str, tuple[dict[str, bytes], str, str]]] = {
    "an unknown key": ({CONF: document(noSuchKey=1)}, CONF, "noSuchKey"),
    "an unknown key below another": (
        {CONF: document(authentication={"webhook": {"nope": 1}})},
        CONF,
        "authentication.webhook.nope",
    ),
    "an unknown key in a drop-in": ({**GOOD, DROPIN: document(noSuchKey=1)}, DROPIN, "noSuchKey"),
    "a key twice in YAML": ({CONF: YAML + b"maxPods: 1\nmaxPods: 2\n"}, CONF, "maxPods"),
    "an anchor": ({CONF: YAML + b"maxPods: &x 1\nnoSuchKey: *x\n"}, CONF, "noSuchKey"),
    "a key twice": ({CONF: document()[:-1] + b', "maxPods": 1, "maxPods": 2}'}, CONF, "maxPods"),
    "a drop-in without a kind": ({**GOOD, DROPIN: document(typed=False)}, DROPIN, "refuses"),
    "an unknown feature gate": ({CONF: document(featureGates={"NoSuchGate": True})}, CONF, "NoSuchGate"),
    "a locked feature gate": ({CONF: document(featureGates={"CPUManager": False})}, CONF, "CPUManager"),
    "a value that is out of bounds": ({CONF: document(imageGCHighThresholdPercent=10)}, CONF, "imageGC"),
    "a value of a drop-in": ({**GOOD, DROPIN: document(maxPods=-4)}, DROPIN, "maxPods"),
    "a wrong type": ({CONF: document(maxPods="many")}, CONF, "maxPods"),
    "a reservation that is no quantity": ({CONF: document(systemReserved={"cpu": "lots"})}, CONF, "systemReserved.cpu"),
    "a threshold that is no quantity": (
        {CONF: document(evictionHard={"memory.available": "nonsense"})},
        CONF,
        "evictionHard.memory.available",
    ),
    "the static policy without a reservation": ({CONF: document(cpuManagerPolicy="static")}, CONF, "cpuManagerPolicy"),
}


@pytest.mark.parametrize("case", TABLE)
async def test_a_bad_configuration_is_refused(check: Check, case: str) -> None:
    new, path, word = TABLE[case]
    found = await check(new)
    assert found
    assert {problem.path for problem in found} == {path}
    assert any(word in problem.message for problem in found)


async def test_a_good_configuration_passes(check: Check) -> None:
    assert await check(GOOD) == ()
    assert await check({CONF: document(systemReserved={"cpu": "100m"}, cpuManagerPolicy="static")}) == ()


async def test_more_than_the_host_has_is_refused(check: Check, tmp_path: Path) -> None:
    (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-1\n")
    (problem,) = await check({CONF: document(systemReserved={"cpu": "64"})})
    assert problem.path == CONF


async def test_a_mistake_from_before_is_not_held_against_the_update(check: Check) -> None:
    wrong: dict[str, Any] = {"imageGCHighThresholdPercent": 10}
    assert await check({CONF: document(**wrong, maxPods=9)}, {CONF: document(**wrong)}) == ()
