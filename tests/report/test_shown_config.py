# SPDX-License-Identifier: Apache-2.0
"""A config for display hides what may be a secret, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.report.shown_config import config_to_dict
from tests.support.keys import ed25519

SECRET = "c2VjcmV0OnNlY3JldA=="
HASH = "$6$salt$SecretSecretSecret"


def entry(path: str, content: str | bytes, mode: int = 0o644, **more: Any) -> dict[str, Any]:
    data = content.encode() if isinstance(content, str) else content
    return {"path": path, "mode": mode, "contents": {"source": f"data:;base64,{_b64(data)}", **more}}


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


FILES = [
    entry("/etc/motd", "welcome\n"),
    entry("/var/lib/kubelet/config.json", '{"auths": {"quay.io": {"auth": "' + SECRET + '"}}}'),
    entry("/etc/private", "hello", 0o600, verification={"hash": "sha512-00"}),
    entry("/etc/key.der", b"\x80\x81key"),
]
UNIT = f"[Service]\nEnvironment=PASSWORD={SECRET}\nExecStart=/bin/true\n"
CONFIG: dict[str, Any] = {
    "apiVersion": "machineconfiguration.openshift.io/v1",
    "kind": "MachineConfig",
    "metadata": {
        "name": "worker-1",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "data:;base64,c2hvcnQ="},
    },
    "spec": {
        "kernelArguments": ["audit=1", "rd.iscsi.password=hunter2"],
        "osImageURL": f"quay.io/os@sha256:{'ab' * 32}",
        "config": {
            "ignition": {"version": "3.4.0"},
            "passwd": {"users": [{"name": "core", "passwordHash": HASH, "sshAuthorizedKeys": [ed25519("me")]}]},
            "storage": {
                "files": FILES,
                "luks": [{"name": "data", "keyFile": {"source": "data:,key"}}],
                "directories": [{"path": "/etc/motd", "contents": {"source": "data:,not-a-file"}}],
            },
            "systemd": {"units": [{"name": "a.service", "contents": UNIT}]},
        },
    },
}


def shown(*, secrets: bool = False) -> dict[str, Any]:
    text = json.dumps(CONFIG).encode()
    return config_to_dict(ConfigSource("worker-1", hashlib.sha256(text).hexdigest(), text), secrets=secrets)


def test_secrets_are_hidden() -> None:
    found = shown()
    text = json.dumps(found)
    for secret in (SECRET, _b64(SECRET.encode())[:20], HASH, "hunter2", _b64(b"hello"), "sha512-00", "data:,", "c2hv"):
        assert secret not in text
    assert _b64(FILES[1]["path"].encode()) not in text
    assert found["hidden"] == [
        "metadata.annotations.kubectl.kubernetes.io/last-applied-configuration",
        "spec.kernelArguments[1]",
        "spec.config.passwd.users[0].passwordHash",
        "spec.config.storage.files[1].contents.source",
        "spec.config.storage.files[2].contents.source",
        "spec.config.storage.files[2].contents.verification",
        "spec.config.storage.files[3].contents.source",
        "spec.config.storage.luks",
        "spec.config.storage.directories[0].contents.source",
        "spec.config.systemd.units[0].contents",
    ]


def test_everything_else_is_shown() -> None:
    spec = shown()["config"]["spec"]
    assert spec["osImageURL"] == CONFIG["spec"]["osImageURL"]
    assert spec["kernelArguments"][0] == "audit=1"
    assert spec["config"]["passwd"]["users"][0]["sshAuthorizedKeys"] == [ed25519("me")]
    files = spec["config"]["storage"]["files"]
    assert files[0] == FILES[0]
    assert [file["path"] for file in files] == [file["path"] for file in FILES]
    assert spec["config"]["systemd"]["units"][0]["contents"].endswith("ExecStart=/bin/true\n")


def test_with_secrets_it_is_the_document() -> None:
    found = shown(secrets=True)
    assert (found["config"], found["hidden"]) == (CONFIG, [])
