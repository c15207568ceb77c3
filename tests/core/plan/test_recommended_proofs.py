# SPDX-License-Identifier: Apache-2.0
"""Each entry of the recommended policy has a proof on a real systemd host: a test that brings such a file there."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
POLICY = ROOT / "systemd/usr/lib/nodeagent/policy-recommended.yaml"
PROOFS = ROOT / "integration/hosts/container/test_recommended_policy.py"


def test_each_entry_is_proved_on_a_host() -> None:
    brought = set(re.findall(r'"(/etc/[^"{}\n]+)":', PROOFS.read_text(encoding="utf-8")))
    entries = [each["path"] for each in yaml.safe_load(POLICY.read_text())["nodeDisruptionPolicy"]["files"]]
    assert entries
    for entry in entries:
        # An entry without a * is a file, or a directory with all that is in it.
        proved = [path for path in brought if fnmatchcase(path, entry) or path.startswith(f"{entry}/")]
        assert proved, f"no test of {PROOFS.name} brings a file of {entry}"
