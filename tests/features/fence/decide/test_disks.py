# SPDX-License-Identifier: Apache-2.0
"""The disk below a block device, for cases that the table of real stacks (tests/fence/blockdev) lacks."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.features.fence.decide.disks import BlockNode, DeviceNumber, Disks, find


def number(minor: int) -> DeviceNumber:
    return DeviceNumber(253, minor)


def node(
    minor: int, *slaves: int, disk: int | None = None, loop: bool = False, backing: int | None = None
) -> BlockNode:
    return BlockNode(
        number(minor),
        f"/dev/d{minor}",
        disk=None if disk is None else number(disk),
        slaves=tuple(number(slave) for slave in slaves),
        loop=loop,
        backing=None if backing is None else number(backing),
    )


def below(top: int, *nodes: BlockNode) -> Disks | None:
    return find(number(top), {node.number: node for node in nodes}.get)


def test_partitions_of_two_disks_are_not_one_place() -> None:
    found = below(0, node(0, 1, 2), node(1, disk=3), node(2, disk=4), node(3), node(4))
    assert found is not None
    assert found.limit.path == "/dev/d0"
    assert [disk.path for disk in found.disks] == ["/dev/d3", "/dev/d4"]


def test_a_partition_and_a_disk_are_not_one_place() -> None:
    found = below(0, node(0, 1, 2), node(1, disk=2), node(2))
    assert found is not None
    assert found.limit.path == "/dev/d0"
    assert [disk.path for disk in found.disks] == ["/dev/d2"]


def test_a_file_on_another_disk() -> None:
    found = below(0, node(0, loop=True, backing=1), node(1, disk=2), node(2))
    assert found is not None
    assert found.limit.path == "/dev/d0", "the kernel limits what is written to the loop device"
    assert [disk.path for disk in found.disks] == ["/dev/d2"]


def test_several_disks_are_named_with_what_lies_on_them() -> None:
    """bcache, for one, has neither the uuid of the device mapper nor a level of a raid."""
    disks = {number: node(number) for number in (1, 2)}
    for top, kind in (
        (node(0, 1, 2), "device mapper"),
        (replace(node(0, 1, 2), dm_uuid="LVM-abc"), "LVM"),
        (replace(node(0, 1, 2), md_level="raid1"), "md raid1"),
    ):
        found = below(0, top, *disks.values())
        assert found is not None
        assert found.notes == (f"/dev/d0 ({kind}) lies on several disks: /dev/d1, /dev/d2; limits are put on /dev/d0",)
    assert node(1).kind == "disk"


def test_a_device_that_disappears() -> None:
    assert below(0) is None
    assert below(0, node(0, 1)) is None
    assert below(0, node(0, disk=1)) is None


def test_whether_two_file_systems_meet() -> None:
    nodes = (node(0, disk=5), node(1, 5, 6), node(2), node(5), node(6))
    one, both, other = (below(top, *nodes) for top in (0, 1, 2))
    assert one is not None
    assert both is not None
    assert other is not None
    assert one.meets(both)
    assert both.meets(one)
    assert not one.meets(other)


@st.composite
def hosts(draw: st.DrawFn) -> dict[DeviceNumber, BlockNode]:
    """Stacks on three disks, two of them with a partition."""
    nodes = [node(0), node(1), node(2), node(3, disk=0), node(4, disk=1)]
    for minor in range(5, 10):
        nodes.append(node(minor, *draw(st.lists(st.integers(0, minor - 1), min_size=1, max_size=3, unique=True))))
    return {each.number: each for each in nodes}


@given(hosts())
def test_systemd_would_stay_where_we_put_the_limit(host: dict[DeviceNumber, BlockNode]) -> None:
    found = find(number(9), host.get)
    assert found is not None
    limit = found.limit
    assert limit.disk is None
    again = find(limit.number, host.get)
    assert again is not None
    assert again.limit == found.limit
    assert {disk.number.minor for disk in found.disks} <= {0, 1, 2}
    assert len(found.disks) == 1 or len(limit.slaves) > 1


@given(st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=6, max_size=6))
def test_nonsense_ends(slaves: list[list[int]]) -> None:
    """No kernel builds circles; what is read while devices come and go may look like one."""
    host = {number(minor): node(minor, *below) for minor, below in enumerate(slaves)}
    found = find(number(0), host.get)
    assert found is None or found.limit.number in host
