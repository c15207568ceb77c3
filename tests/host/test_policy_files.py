# SPDX-License-Identifier: Apache-2.0
"""Which policy files are read, and what is missing without an error."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nodeagent.errors import InvalidInput
from nodeagent.host import policy_files
from nodeagent.host.policy_files import read_policy_files
from nodeagent.settings.schema import Settings


def of(path: Path | str) -> Settings:
    return msgspec.structs.replace(Settings(), policy=str(path), recommended_policy=False)


def test_a_file_that_the_settings_name_must_exist(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    (found,) = read_policy_files(of(policy)).values()
    assert isinstance(found, InvalidInput)
    assert found.reason == "NoPolicy"
    policy.write_text("{}")
    assert read_policy_files(of(policy)) == {str(policy): b"{}"}
    assert read_policy_files(of(policy), without=[str(policy)]) == {}


def test_the_default_one_need_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_files, "_read", lambda _: None)
    monkeypatch.setattr(policy_files, "names_in", lambda _: [])
    assert read_policy_files(of(Settings().policy)) == {}


def test_a_drop_in_that_was_removed_since_it_was_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policy.yaml").write_text("{}")
    monkeypatch.setattr(policy_files, "names_in", lambda _: ["10-gone.yaml"])
    assert read_policy_files(of(tmp_path / "policy.yaml")).keys() == {str(tmp_path / "policy.yaml")}
