# SPDX-License-Identifier: Apache-2.0
"""Documents of an admin or a controller: MachineConfigs with their plan, the policy, the settings, and their text."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

from integration.fuzz.target import Target, choices, document
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.parse import parse, parse_stored
from nodeagent.core.config.text import data_url, plain_json, plain_yaml
from nodeagent.core.coordination.annotations import clean
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.plan_json import plan_to_dict
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.core.redact import redact
from nodeagent.domains import check_update, default_policy
from nodeagent.errors import AgentError, InvalidInput
from nodeagent.settings.check import check_values, valid_values
from nodeagent.settings.load import merge, parse_fragment

CONFIG: Final[dict[str, Any]] = {
    "apiVersion": "machineconfiguration.openshift.io/v1",
    "kind": "MachineConfig",
    "metadata": {"name": "worker-1", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
    "spec": {
        "kernelArguments": ["hugepagesz=1G", "hugepages=4"],
        "kernelType": "default",
        "extensions": ["usbguard"],
        "fips": False,
        "config": {
            "ignition": {"version": "3.5.0"},
            "passwd": {
                "users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA"], "passwordHash": "$6$a$b"}]
            },
            "storage": {
                "files": [
                    {"path": "/etc/a.conf", "mode": 420, "overwrite": True, "contents": {"source": "data:,a%20b"}},
                    {"path": "/etc/sysctl.d/x.conf", "contents": {"source": "data:;base64,a2VybmVsLmE9MQ=="}},
                    {"path": "/etc/chrony.conf", "contents": {"compression": "gzip", "source": "data:;base64,H4sI"}},
                ],
            },
            "systemd": {
                "units": [
                    {
                        "name": "a.service",
                        "enabled": True,
                        "contents": "[Service]\nExecStart=/bin/true\n",
                        "dropins": [{"name": "x.conf", "contents": "[Unit]\nAfter=b.service\n"}],
                    }
                ]
            },
        },
    },
}
POLICY: Final[dict[str, Any]] = {
    "files": [{"path": "/etc/a.conf", "actions": [{"type": "Restart", "restart": {"serviceName": "a.service"}}]}],
    "units": [{"name": "a.service", "actions": [{"type": "Reboot"}]}],
    "sshkey": {"actions": [{"type": "None"}]},
}
EMPTY: Final = MachineConfig("empty")
DEFAULT: Final = default_policy()
SETTINGS: Final = (
    b"cluster: {source: cluster, kubeconfig: /etc/kubeconfig}\nreboot:\n  allow: false\n",
    b"actions: {settle: 30}\nverify: {timeout: .nan}\n",
    b"windows: [{start: '22:00', length: 3600, days: [Mon]}]\nslots: {pool: workers, max_unavailable: 1}\n",
    b"? [a]\n: b\n",
    b"&a [*a]",
    b"log_level: !!python/object:os.system {}\n",
)


def config(data: bytes) -> None:
    try:
        new = parse(data)
    except InvalidInput:
        with suppress(InvalidInput):
            parse_stored(data)
        return
    for old, other in ((EMPTY, new), (new, EMPTY)):
        plan_to_dict(make_plan(old, other, DEFAULT))
        with suppress(AgentError):
            check_update(old, other, other.name)


def odd_config(data: bytes) -> None:
    found = document(CONFIG, data)
    if found is not None:
        config(json.dumps(found).encode())


def policy(data: bytes) -> None:
    found = None if data.startswith(b"{") else document(POLICY, data)
    with suppress(InvalidInput):
        parse_policy(data if found is None else json.dumps(found).encode())


def settings(data: bytes) -> None:
    with suppress(InvalidInput):
        merged = merge([parse_fragment("/etc/nodeagent/x.yaml", data)])
        valid_values({key: value.value for key, value in merged.items()})
        check_values(merged)


def text(data: bytes) -> None:
    words = data.decode(errors="replace")
    redact(words)
    clean(words)
    # Each of these documents ``ValueError``, of which ``InvalidInput`` is none.
    for read in (plain_json.loads, plain_yaml.loads):
        with suppress(ValueError):
            read(data)
    with suppress(ValueError):
        data_url.decode(words)


TARGETS: Final = (
    Target("config", config, [json.dumps(CONFIG).encode(), b"kind: MachineConfig\nspec: {config: {}}\n", b"[" * 3000]),
    Target("config-values", odd_config, choices(60)),
    Target("policy", policy, [json.dumps(POLICY).encode(), b"{}", *choices(20)]),
    Target("settings", settings, SETTINGS),
    Target(
        "text",
        text,
        [
            b"password=hunter2 Authorization: Bearer abcdefghijkl",
            b'{"auth": "eA=="}',
            b"data:text/plain;base64,aGVsbG8=",
            b"data:;gzip,%%%",
            b"https://user:pass@host/x",
            b"-----BEGIN PRIVATE KEY-----\nAAAA",
            b"a: &a [*a]\n",
        ],
    ),
)
