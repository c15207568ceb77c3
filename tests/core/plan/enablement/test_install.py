# SPDX-License-Identifier: Apache-2.0
"""The aliases that systemd accepts."""

from __future__ import annotations

import pytest

from nodeagent.core.plan.enablement.install import install_of
from nodeagent.core.plan.enablement.unit_files import UnitSource


@pytest.mark.parametrize(
    ("unit", "alias", "link"),
    [
        ("b.service", "a.service", "a.service"),
        ("b.service", "a.socket", ""),
        ("b.service", "a@.service", ""),
        ("b@1.service", "a@.service", "a@1.service"),
        ("b@1.service", "a@1.service", "a@1.service"),
        ("b@1.service", "a@2.service", ""),
    ],
)
def test_an_alias(unit: str, alias: str, link: str) -> None:
    path, text = f"/etc/systemd/system/{unit}", f"[Install]\nAlias={alias}\n"
    source = UnitSource(unit, path, (text,), (text,))
    assert install_of(source, {}).links == ({link: path} if link else {})
