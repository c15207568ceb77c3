# SPDX-License-Identifier: Apache-2.0
"""The setting of the feature, and what it contradicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.features.uncordon.settings import UncordonSettings
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.load import load


def test_it_needs_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "50-x.yaml").write_text("drain: {uncordon_degraded: true}\n")
    found = load([tmp_path])
    with pytest.raises(InvalidInput, match=r"drain\.uncordon_degraded needs a cluster"):
        check_consistency(found.settings, found.origins)
    (tmp_path / "60-x.yaml").write_text("cluster: {kubeconfig: /k}\n")
    found = load([tmp_path])
    check_consistency(found.settings, found.origins)
    assert found.settings.of(UncordonSettings).uncordon_degraded
