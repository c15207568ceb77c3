# SPDX-License-Identifier: Apache-2.0
"""Where the list of components of a package is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import nodeagent
from nodeagent.host.components import SBOM, sbom


def test_each_package_has_its_list_of_components(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled, of_host = tmp_path / "bundled", tmp_path / "of_host"
    monkeypatch.setattr(sys, "prefix", str(bundled))
    monkeypatch.setattr(nodeagent, "__file__", str(of_host / "python/nodeagent/__init__.py"))
    assert sbom() == bundled / SBOM
    of_host.mkdir()
    (of_host / SBOM).touch()
    assert sbom() == of_host / SBOM
