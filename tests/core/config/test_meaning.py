# SPDX-License-Identifier: Apache-2.0
"""Texts that ask for the same have one meaning; everything that a host could notice gives another."""

from __future__ import annotations

import base64
import gzip
import json
from copy import deepcopy
from typing import Any

import pytest
import yaml

from nodeagent.core.config.machineconfig import meaning
from nodeagent.core.config.parse import parse

CONTENT = "key = value\n"
BASE: dict[str, Any] = {
    "apiVersion": "machineconfiguration.openshift.io/v1",
    "kind": "MachineConfig",
    "metadata": {"name": "a", "labels": {"role": "worker"}},
    "spec": {
        "kernelArguments": ["quiet", "audit=1"],
        "extensions": ["usbguard", "kerberos"],
        "osImageURL": f"quay.example/os@sha256:{'a' * 64}",
        "config": {
            "ignition": {"version": "3.4.0"},
            "passwd": {"users": [{"name": "core", "passwordHash": "$6$salt$hash"}]},
            "storage": {
                "files": [
                    {"path": "/etc/a", "mode": 0o600, "contents": {"source": "data:,key%20%3D%20value%0A"}},
                    {"path": "/etc/b", "user": {"id": 7}, "contents": {"source": "data:,b"}},
                ]
            },
            "systemd": {
                "units": [
                    {"name": "x.service", "enabled": True, "contents": "[Service]\nExecStart=/bin/true\n"},
                    {"name": "y.service", "dropins": [{"name": "10-a.conf", "contents": "[Unit]\n"}]},
                ]
            },
        },
    },
}


def of(document: Any, dump: Any = json.dumps) -> str:
    return meaning(parse(dump(document).encode()))


def changed(path: str, value: Any) -> dict[str, Any]:
    document: Any = deepcopy(BASE)
    *steps, last = path.split("/")
    place = document
    for step in steps:
        place = place[int(step)] if step.isdigit() else place[step]
    if isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value
    return document  # type: ignore[no-any-return]


FILE = "spec/config/storage/files/0"
UNIT = "spec/config/systemd/units"
BASE64 = f"data:;base64,{base64.b64encode(CONTENT.encode()).decode()}"
ZIPPED = f"data:;base64,{base64.b64encode(gzip.compress(CONTENT.encode())).decode()}"


@pytest.mark.finding(
    "updates: budget of fallback reboots",
    "The name, annotations, order and encoding of a config do not count, everything that a host could notice does.",
)
@pytest.mark.parametrize(
    "document",
    [
        changed("metadata/annotations", {"renderedAt": "2026-01-01"}),
        changed("metadata/labels", {"role": "master"}),
        changed("metadata/creationTimestamp", "2026-01-01T00:00:00Z"),
        changed("metadata/name", "rendered-worker-0123"),
        changed("spec/config/ignition/version", "3.2.0"),
        changed("spec/config/storage/files", BASE["spec"]["config"]["storage"]["files"][::-1]),
        changed("spec/extensions", ["kerberos", "usbguard"]),
        changed("spec/kernelType", "default"),
        changed(f"{FILE}/contents/source", BASE64),
        changed(f"{FILE}/contents", {"source": ZIPPED, "compression": "gzip"}),
        changed(f"{FILE}/user", {"id": 0}),
        changed(f"{FILE}/user", {"name": "root"}),
        changed(f"{FILE}/overwrite", True),
        dict(reversed(BASE.items())),
    ],
)
def test_another_text_with_the_same_meaning(document: Any) -> None:
    assert of(document) == of(BASE)
    assert of(document, yaml.safe_dump) == of(BASE)


@pytest.mark.parametrize(
    "document",
    [
        changed(f"{FILE}/path", "/etc/other"),
        changed(f"{FILE}/mode", 0o644),
        changed(f"{FILE}/user", {"name": "core"}),
        changed(f"{FILE}/group", {"id": 1}),
        changed(f"{FILE}/contents/source", "data:,key"),
        changed("spec/config/storage/files/1/user", {"id": 8}),
        changed("spec/kernelArguments", ["audit=1", "quiet"]),
        changed("spec/kernelType", "realtime"),
        changed("spec/extensions", ["usbguard"]),
        changed("spec/fips", True),
        changed("spec/osImageURL", f"quay.example/os@sha256:{'b' * 64}"),
        changed("spec/config/passwd/users/0/passwordHash", "$6$salt$other"),
        changed(f"{UNIT}/0/enabled", False),
        changed(f"{UNIT}/0/contents", "[Service]\nExecStart=/bin/false\n"),
        changed(f"{UNIT}/0/name", "z.service"),
        changed(f"{UNIT}/0", {"name": "x.service", "mask": True}),
        changed(f"{UNIT}/1/dropins/0/name", "20-a.conf"),
        changed(f"{UNIT}/1/dropins/0/contents", "[Unit]\nAfter=x.service\n"),
        changed("spec/config/storage/luks", [{"name": "data", "device": "/dev/sdb"}]),
    ],
)
def test_another_meaning(document: Any) -> None:
    assert of(document) != of(BASE)
