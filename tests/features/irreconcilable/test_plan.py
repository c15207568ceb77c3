# SPDX-License-Identifier: Apache-2.0
"""A plan without the daemon accepts the sections that the settings accept, and names the setting where they do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodeagent.agent.offline import plan_offline
from nodeagent.cli.main import main
from nodeagent.errors import Unreconcilable
from nodeagent.features.irreconcilable.settings import IrreconcilableSettings
from nodeagent.settings.schema import Settings
from tests.agent.lived_in import host
from tests.agent.test_daemon_starts import on
from tests.agent.whole_daemon import WholeDaemon, source
from tests.support.fixtures import private_bus
from tests.support.needs import acts_as_root

__all__ = ["host", "private_bus"]

ENTRY = "spec.config.storage.disks[/dev/vda]"
NOTE = "is added and is not applied, which is accepted"
SETTING = "irreconcilable.accept with storage.disks lets a host keep what it has and apply the rest"
WITH_DISKS = """\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: disks}
spec:
  config:
    ignition: {version: 3.4.0}
    storage:
      disks: [{device: /dev/vda, wipeTable: true}]
"""


@pytest.fixture
def between(tmp_path: Path) -> list[str]:
    """Return the command of a plan between two files, of which the second one has disks."""
    (tmp_path / "a.yaml").write_bytes(source("a").text)
    (tmp_path / "b.yaml").write_text(WITH_DISKS)
    return ["plan", "--from", str(tmp_path / "a.yaml"), "--to", str(tmp_path / "b.yaml")]


def test_between_files(between: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(parts=(IrreconcilableSettings(accept=("storage.disks",)),))
    monkeypatch.setattr("nodeagent.cli._settings.valid_settings", lambda: settings)
    assert main(between) == 0
    assert f"warning: {ENTRY} {NOTE}" in " ".join(capsys.readouterr().out.split())
    assert main([*between, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == [{"path": ENTRY, "message": NOTE}]


def test_between_files_without_the_setting(between: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(between) == 3
    assert SETTING in " ".join(capsys.readouterr().err.split())


@acts_as_root
async def test_from_the_store(host: WholeDaemon) -> None:
    await on(host, source("a"))
    with pytest.raises(Unreconcilable) as raised:
        await plan_offline(WITH_DISKS, {}, read=host.read)
    assert SETTING in raised.value.hint
    (host.fragments / "50-sections.yaml").write_text("irreconcilable: {accept: [storage.disks]}\n")
    answer: dict[str, Any] = await plan_offline(WITH_DISKS, {}, read=host.read)
    assert f"warning: {ENTRY} {NOTE}" in answer["notes"]
