# SPDX-License-Identifier: Apache-2.0
"""Small configs on disk, and a terminal that is none."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.keys import ed25519

CLUSTER_POLICY = {"default": [{"type": "insecureAcceptAnything"}]}
STRICTER_POLICY = {"default": [{"type": "reject"}]}


def machine_config(name: str, files: Mapping[str, bytes], **spec: Any) -> dict[str, Any]:
    entries = [
        {"path": path, "mode": 0o644, "contents": {"source": f"data:;base64,{base64.b64encode(content).decode()}"}}
        for path, content in files.items()
    ]
    ignition = {"ignition": {"version": "3.4.0"}, "storage": {"files": entries}, **spec.pop("ignition", {})}
    return {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name},
        "spec": {"config": ignition, **spec},
    }


def write(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data))
    return path


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    """a.json and b.json, which differ in policy.json and the ssh keys."""
    for name, policy, key in (("a", CLUSTER_POLICY, ed25519("A")), ("b", STRICTER_POLICY, ed25519("B"))):
        files = {"/etc/containers/policy.json": json.dumps(policy).encode(), "/etc/same": b"same"}
        users = {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [key]}]}}
        write(tmp_path / f"{name}.json", machine_config(f"rendered-worker-{name}", files, ignition=users))
    return tmp_path
