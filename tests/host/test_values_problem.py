# SPDX-License-Identifier: Apache-2.0
"""The values of the kernel after a restart of systemd-sysctl."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.host.health import HostHealth, values_problem


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, value in (("vm/swappiness", "10\n"), ("net/ipv4/range", "1024\t60999\n"), ("../secret", "x")):
        place = tmp_path / "proc/sys" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(value)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "wanted", "problem"),
    [
        ("/proc/sys/vm/swappiness", "10", ""),
        ("/proc/sys/net/ipv4/range", "1024 60999", ""),
        ("/proc/sys/vm/swappiness", "20", "vm.swappiness is 10 and not 20"),
        ("/proc/sys/vm/missing", "1", "vm.missing cannot be read: No such file or directory"),
        ("/proc/sys/vm", "1", "vm cannot be read: Is a directory"),
        ("/proc/sys/../secret", "x", "/proc/sys/../secret is no setting of the kernel"),
        ("/etc/passwd", "x", "/etc/passwd is no setting of the kernel"),
    ],
)
def test_values(path: str, wanted: str, problem: str, root: Path) -> None:
    assert values_problem({path: wanted}, root) == problem


def test_a_message_is_bounded(root: Path) -> None:
    (root / "proc/sys/vm/long").write_text("x" * 10_000)
    problem = values_problem({f"/proc/sys/vm/{name}": "1" for name in ("long", *range(1000))}, root)
    assert len(problem) < 500


async def test_of_this_kernel() -> None:
    health = HostHealth(lambda _: pytest.fail("no check of a unit"))
    value = Path("/proc/sys/kernel/ostype").read_text()
    assert await health.values_problem({"/proc/sys/kernel/ostype": value}) == ""
    assert await health.values_problem({"/proc/sys/kernel/ostype": "Multics"})
