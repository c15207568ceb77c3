# SPDX-License-Identifier: Apache-2.0
"""Which units count for the programs that a config starts."""

from __future__ import annotations

import pytest

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile, SymbolicLink
from nodeagent.core.validate.started import check

UNITS = "/etc/systemd/system"
SCRIPT = "/usr/local/bin/run"
TEXT = RegularFile(f"[Service]\nExecStart={SCRIPT}\n".encode())


@pytest.mark.parametrize(
    ("units", "counts"),
    [
        ({"run.service": TEXT}, True),
        ({"run.service.d/a.conf": TEXT}, True),
        ({"run.service": SymbolicLink("/dev/null"), "run.service.d/a.conf": TEXT}, False),
        ({"run.service": SymbolicLink("/dev/null"), "other.service": TEXT}, True),
        ({"run.service": SymbolicLink("/etc/run.service"), "run.service.d/a.conf": TEXT}, True),
    ],
    ids=["a unit", "a drop-in", "a mask", "another mask", "an alias"],
)
def test_a_masked_unit_starts_nothing(units: dict[str, FileTreeEntry], counts: bool) -> None:
    tree = {SCRIPT: RegularFile(b"#!/bin/sh\n"), **{f"{UNITS}/{name}": entry for name, entry in units.items()}}
    assert [problem.path for problem in check({}, tree)] == ([SCRIPT] if counts else [])
