# SPDX-License-Identifier: Apache-2.0
"""What a ring does on a machine that cannot run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.hosts import requirements
from integration.hosts.container.conftest import required, unavailable
from integration.hosts.errors import Unavailable
from integration.hosts.vm import vm_requirements

SAID = "missing: tar; install with: sudo dnf install tar"


def stand_in(monkeypatch: pytest.MonkeyPatch, path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setattr(requirements, "TOOLS", path)


def test_a_ring_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(monkeypatch, tmp_path / "tools.sh", f"echo '{SAID}' >&2; exit 1")
    for ensure in (lambda: requirements.ensure(print, build=True), lambda: vm_requirements.ensure(print)):
        with pytest.raises(Unavailable) as raised:
            ensure()
        assert str(raised.value) == SAID
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"the host ring cannot run here: {SAID}"):
        unavailable(raised.value)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=f"the host ring cannot run here: {SAID}"):
        required(lambda: requirements.install(print, "tar"))
    assert requirements.missing("tar") == SAID


def test_what_is_installed_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(monkeypatch, tmp_path / "tools.sh", 'echo "installing with dnf: $*"')
    lines: list[str] = []
    requirements.install(lines.append, "tar", "images")
    assert lines == ["installing with dnf: install tar images"]
    assert requirements.missing("tar") == ""


@pytest.mark.parametrize(
    ("more", "words"), [((), "boot hosts images"), (("machines", "package"), "boot hosts images machines package")]
)
def test_hosts_name_all_groups_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: tuple[str, ...], words: str
) -> None:
    """So that a user learns everything before the first program is installed."""
    stand_in(monkeypatch, tmp_path / "tools.sh", 'echo "$*" >&2; exit 1')
    with pytest.raises(Unavailable) as raised:
        requirements.ensure(print, build=True, more=more)
    assert str(raised.value) == words
