# SPDX-License-Identifier: Apache-2.0
"""Updates of the OS on the host in memory: a whole update, and files that the merge of /etc changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.update.ports.events import StagingAdvanced
from nodeagent.update.stages.compare import os_mismatches
from nodeagent.update.states import Phase
from tests.world import FakeUnit
from tests.world.os_host import (
    A_DIGEST,
    B_DIGEST,
    KARGS,
    NEW,
    OLD,
    UNIT,
    at_old,
    booted_digest,
    managed,
    on,
    os_host,
)
from tests.world.run import Host, phases

pytestmark = pytest.mark.looptime


async def test_staged_before_the_lease_and_rebooted_once() -> None:
    host = await at_old()
    host.want(NEW)
    await host.settle()
    assert phases(host) == ["Staging", "Leasing", "Writing", "Acting", "Rebooting", "Verifying", "Releasing", "Idle"]
    assert host.world.staged_with_lease == []
    assert host.actions() == ["reboot"]
    assert booted_digest(host.world) == B_DIGEST
    assert managed(host.world, OLD, NEW) == expand(NEW)
    assert host.world.disk["/etc/os"] == RegularFile(b"b"), "what the OS ships came with it"
    entry = host.world.history[-1]
    assert (entry.outcome, entry.disruption, entry.reboots) == ("done", "reboot", 1)


async def test_update_and_return() -> None:
    host = await at_old()
    for wanted, digest in ((NEW, B_DIGEST), (OLD, A_DIGEST), (NEW, B_DIGEST)):
        host.want(wanted)
        await host.settle()
        assert host.phase is Phase.IDLE
        assert booted_digest(host.world) == digest
        assert managed(host.world, OLD, NEW) == expand(wanted)
    assert host.actions() == ["reboot"] * 3


async def test_kernel_arguments_of_the_host_stay() -> None:
    host = await at_old()
    host.want(KARGS)
    await host.settle()
    host.want(on("b", "fewer", kernel_arguments=("nosmt",)))
    await host.settle()
    assert host.world.deployments[0].kernel_arguments == ("root=LABEL=root", "quiet", "nosmt")
    assert booted_digest(host.world) == B_DIGEST
    assert host.actions() == ["reboot"] * 2


@pytest.mark.finding(
    "configs: order of kernel arguments", "Kernel arguments that belong together stay together, in order and number."
)
async def test_huge_pages_stay_with_their_size() -> None:
    host = await at_old()
    for counts in (("4", "100"), ("8", "100"), ("8", "8")):
        pages = ("hugepagesz=1G", f"hugepages={counts[0]}", "hugepagesz=2M", f"hugepages={counts[1]}")
        host.want(on("a", f"pages-{'-'.join(counts)}", kernel_arguments=pages))
        await host.settle()
        assert host.phase is Phase.IDLE
        assert host.world.deployments[0].kernel_arguments == ("root=LABEL=root", "quiet", *pages)
    assert host.actions() == ["reboot"] * 3


@pytest.mark.finding("configs: arguments of the host", "An argument that the host has on its own comes back as it was.")
async def test_an_own_argument_stays_when_no_config_names_it() -> None:
    host = await at_old()
    before = host.world.deployments[0].kernel_arguments
    for name, arguments in (("own", ("quiet",)), ("gone", ())):
        host.want(on("a", name, kernel_arguments=arguments))
        await host.settle()
        assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, "done")
        assert host.world.deployments[0].kernel_arguments == before
    assert host.actions() == [], "nothing changed for the kernel"
    assert not [key for key in host.world.originals if key.startswith("arguments:")]


@pytest.mark.finding("configs: arguments of the host", "An argument that the host has on its own comes back as it was.")
async def test_an_own_argument_that_a_config_repeats() -> None:
    host = await at_old()
    before = host.world.deployments[0].kernel_arguments
    host.want(on("a", "twice", kernel_arguments=("quiet", "quiet")))
    await host.settle()
    assert (host.phase, host.world.deployments[0].kernel_arguments) == (Phase.IDLE, (*before, "quiet"))
    host.want(OLD)
    await host.settle()
    assert (host.phase, host.world.deployments[0].kernel_arguments) == (Phase.IDLE, before)


@pytest.mark.finding("configs: arguments of the host", "An argument that the host has on its own comes back as it was.")
async def test_own_arguments_come_back_beside_those_of_the_config() -> None:
    host = await at_old()
    before = host.world.deployments[0].kernel_arguments
    host.want(on("a", "more", kernel_arguments=("quiet", "nosmt", "root=LABEL=other")))
    await host.settle()
    assert host.world.deployments[0].kernel_arguments == (*before, "nosmt", "root=LABEL=other")
    host.want(OLD)
    await host.settle()
    assert host.world.deployments[0].kernel_arguments == before
    assert host.actions() == ["reboot"] * 2


def line(host: Host) -> tuple[str, ...]:
    return host.world.deployments[0].kernel_arguments


LESS = on("a", "less", absent_arguments=("quiet",))


async def test_a_default_argument_is_taken_away_and_given_back() -> None:
    host = await at_old()
    before = line(host)
    host.want(LESS)
    await host.settle()
    assert (host.phase, line(host)) == (Phase.IDLE, ("root=LABEL=root",))
    # Another image is staged without it, too.
    host.want(replace(LESS, name="newer", os_image_url=on("b", "").os_image_url))
    await host.settle()
    assert (host.phase, line(host), booted_digest(host.world)) == (Phase.IDLE, ("root=LABEL=root",), B_DIGEST)
    host.want(OLD)
    await host.settle()
    assert (host.phase, line(host)) == (Phase.IDLE, before)
    assert host.actions() == ["reboot"] * 3
    assert not [key for key in host.world.originals if key.startswith("arguments:")]


async def test_an_argument_that_the_host_never_had() -> None:
    host = await at_old()
    before = line(host)
    for wanted in (on("a", "never", absent_arguments=("splash",)), OLD):
        host.want(wanted)
        await host.settle()
        assert (host.phase, host.world.history[-1].to_name, line(host)) == (Phase.IDLE, wanted.name, before)
    assert host.actions() == []


async def test_the_value_of_a_default_argument_is_replaced() -> None:
    """Without the old value, the host does not have both."""
    host = await at_old()
    host.world.deployments[0] = replace(
        host.world.deployments[0], kernel_arguments=("root=LABEL=root", "audit=0", "quiet")
    )
    host.want(on("a", "audit", kernel_arguments=("audit=1",), absent_arguments=("audit=0",)))
    await host.settle()
    assert (host.phase, line(host)) == (Phase.IDLE, ("root=LABEL=root", "quiet", "audit=1"))
    host.want(on("a", "same", kernel_arguments=("audit=1",)))
    await host.settle()
    assert (host.phase, line(host)) == (Phase.IDLE, ("root=LABEL=root", "quiet", "audit=0", "audit=1"))
    host.want(OLD)
    await host.settle()
    assert (host.phase, line(host)) == (Phase.IDLE, ("root=LABEL=root", "quiet", "audit=0"))


async def test_an_argument_that_is_back_is_drift() -> None:
    host = await at_old()
    host.want(LESS)
    await host.settle()
    assert await os_mismatches(host.ports(), LESS) == {}
    there = host.world.deployments[0]
    host.world.deployments[0] = replace(there, kernel_arguments=(*there.kernel_arguments, "quiet"))
    assert await os_mismatches(host.ports(), LESS) == {"kernelArguments:kernelArguments": "still has quiet"}
    # The next config does not take it over as one that was given back.
    host.want(replace(LESS, name="repaired", files={}))
    await host.settle()
    assert host.world.history[-1].to_name == "less", "an update does not begin with such drift"


async def test_extensions_and_another_kernel() -> None:
    host = await at_old()
    host.want(on("a", "rt", extensions=("usbguard",), kernel_type="realtime"))
    await host.settle()
    assert {"usbguard", "kernel-rt-core"} <= host.world.deployments[0].packages
    assert "kernel-core" in host.world.deployments[0].removed
    host.want(OLD)
    await host.settle()
    assert (host.phase, host.world.deployments[0].packages) == (Phase.IDLE, frozenset())
    assert host.world.deployments[0].removed == frozenset()


async def test_the_pull_secret_of_the_new_config_is_used() -> None:
    host = await at_old()
    pods, image = ('{"auths": {"%s.example": {"auth": "dTpw"}}}' % name for name in ("pods", "image"))  # noqa: UP031
    host.want(on("b", "new", {"/var/lib/kubelet/config.json": pods}))
    await host.settle()
    host.want(on("c", "newer", {"/var/lib/kubelet/config.json": pods, "/etc/ostree/auth.json": image}))
    await host.settle()
    host.want(OLD)
    await host.settle()
    assert host.world.credentials == [pods.encode(), image.encode(), None]


async def test_progress_is_logged_for_each_tenth() -> None:
    host = await at_old()
    host.world.stage_seconds = 400
    host.want(NEW)
    await host.settle()
    found = [event for event in host.world.events if isinstance(event, StagingAdvanced)]
    assert len(found) == 20
    lines = [event.step for event in found if not event.routine]
    assert [(step.index, step.count, step.percent) for step in lines if step] == [
        (part, 20, part * 5) for part in range(0, 20, 2)
    ]


async def test_first_start_stages_only_differences() -> None:
    host = os_host()
    host.want(on("a", "first", {}, kernel_arguments=("quiet",)))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, [])
    host = os_host()
    host.want(on("b", "first"))
    await host.settle()
    assert (host.phase, host.actions(), booted_digest(host.world)) == (Phase.IDLE, ["reboot"], B_DIGEST)


async def test_files_lost_in_etc_merge_are_written_again() -> None:
    """The file is as the old image ships it, so the config is not visible in it."""
    old, new = on("a", "old", {"/etc/chrony": "a"}), on("b", "new", {"/etc/chrony": "a"})
    host = await at_old(old)
    host.want(new)
    await host.settle()
    assert host.phase is Phase.IDLE, host.record
    assert host.world.disk["/etc/chrony"] == RegularFile(b"a")
    assert host.actions() == ["reboot", "reboot"]
    assert (host.world.history[-1].outcome, host.world.history[-1].reboots) == ("done", 2)
    assert len(host.world.credentials) == 1, "staged once: the second reboot is for the files only"


async def test_removed_entry_gets_the_default_of_the_booted_image() -> None:
    host = await at_old(on("a", "old"))
    ships = host.world.disk["/etc/chrony"]
    host.want(on("b", "new", {"/etc/chrony": "a"}))
    await host.settle()
    assert host.world.disk["/etc/chrony"] == ships
    host.want(on("b", "later"))
    await host.settle()
    assert host.phase is Phase.IDLE, host.record
    assert host.world.disk["/etc/chrony"] == host.world.disk["/usr/etc/chrony"] != ships


async def test_no_rollback_when_etc_merge_breaks_service() -> None:
    old, new = on("a", "old", {"/etc/chrony": "a"}, units=[UNIT]), on("b", "new", {"/etc/chrony": "a"}, units=[UNIT])
    host = await at_old(old)

    class Picky(FakeUnit):
        @property
        def bad_until_boot(self) -> int:
            return 99 if host.world.disk.get("/etc/chrony") != RegularFile(b"a") else 0

        @bad_until_boot.setter
        def bad_until_boot(self, value: int) -> None: ...

    host.world.units["app.service"] = Picky()
    host.want(new)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_file_that_never_matches_is_written_again_once() -> None:
    host = await at_old()
    host.world.tampers["/etc/app/y"] = RegularFile(b"mine")
    host.want(NEW)
    await host.settle()
    assert (host.record.reason, host.world.history[-1].reason) == ("Reverted", "VerifyFailed")
    assert host.actions() == ["reboot"] * 4, "there, again, back, and once more because files were restored"
    assert booted_digest(host.world) == A_DIGEST
