# SPDX-License-Identifier: Apache-2.0
"""`nodeagent config` prints MachineConfigs; the settings have a command of their own."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.errors import InvalidInput, Refused
from nodeagent.host.store.store import SqliteStore
from nodeagent.reasons import Reason, hint
from nodeagent.report.shown_config import config_to_dict
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.record import Record
from nodeagent.update.states import Phase
from tests.cli.conftest import machine_config
from tests.cli.daemon.conftest import Cli
from tests.cli.daemon.fake_daemon import FakeDaemon, entry

UNIT = "[Service]\nExecStart=/bin/true\n"
CONFIG = machine_config(
    "worker-1",
    {"/var/lib/kubelet/config.json": b'{"auths": {"q": {"auth": "c2VjcmV0"}}}', "/etc/motd": b"hello\n"},
    ignition={"systemd": {"units": [{"name": "a.service", "contents": UNIT}]}},
)


def source(config: dict[str, Any]) -> ConfigSource:
    text = json.dumps(config).encode()
    return ConfigSource(config["metadata"]["name"], hashlib.sha256(text).hexdigest(), text)


def test_a_config_is_printed_as_yaml_without_secrets(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["Config"] = json.dumps(config_to_dict(source(CONFIG), secrets=False))
    answer = cli("config", "current")
    assert answer.code == 0
    document = yaml.safe_load(answer.out)
    assert document["metadata"] == {"name": "worker-1"}
    assert [file["contents"] for file in document["spec"]["config"]["storage"]["files"]] == [
        {"source": "[redacted]"},
        {"source": "data:;base64,aGVsbG8K"},
    ]
    # A unit reads as it does on the host.
    assert "contents: |\n          [Service]\n          ExecStart=/bin/true\n" in answer.out
    assert answer.err == "1 value hidden; --show-secrets prints them, as root\n"
    which, options = daemon.calls[-1][1]
    assert (which, {name: value.value for name, value in options.items()}) == (
        "current",
        {"name": "", "secrets": False},
    )


def test_secrets_are_requested(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["Config"] = json.dumps(config_to_dict(source(CONFIG), secrets=True))
    answer = cli("config", "show", "worker-1", "--show-secrets", "--json")
    assert answer.json["config"] == CONFIG
    which, options = daemon.calls[-1][1]
    assert (which, {name: value.value for name, value in options.items()}) == (
        "named",
        {"name": "worker-1", "secrets": True},
    )


def test_a_config_that_is_not_kept(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.answers["Config"] = InvalidInput("there is no config x in the store", reason=Reason.UNKNOWN_CONFIG)
    answer = cli("config", "show", "x")
    assert (answer.code, answer.err.splitlines()) == (
        2,
        ["nodeagent: UnknownConfig: there is no config x in the store", f"hint: {hint(Reason.UNKNOWN_CONFIG)}"],
    )
    daemon.answers["Config"] = Refused("there is no current config yet", reason=Reason.NO_CURRENT_CONFIG)
    assert cli("config", "current").code == 4


@pytest.fixture
async def store(tmp_path: Path) -> None:
    path = tmp_path / "state" / "state.db"
    path.parent.mkdir(mode=0o700)
    found = source(CONFIG)
    async with SqliteStore(path) as store:
        await store.put_config(source(machine_config("worker-0", {})))
        await store.put_config(found)
        await store.promote(Record(phase=Phase.IDLE), found.digest, HistoryEntry(**entry("u1", "worker-1")))


def test_without_a_daemon_the_store_is_read(cli: Cli, bus_address: str, store: None, tmp_path: Path) -> None:
    answer = cli("config", "current", "--json")
    assert (answer.code, answer.json["name"], answer.json["hidden"]) == (
        0,
        "worker-1",
        ["spec.config.storage.files[0].contents.source"],
    )
    assert cli("config", "show", "worker-0", "--json").json["name"] == "worker-0"
    (tmp_path / "desired.yaml").write_text(json.dumps(machine_config("worker-2", {})))
    assert cli("config", "desired", "--json").json["name"] == "worker-2"
    missing = cli("config", "show", "nowhere", "--json")
    assert (missing.code, missing.error["reason"]) == (2, "UnknownConfig")
