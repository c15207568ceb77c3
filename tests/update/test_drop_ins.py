# SPDX-License-Identifier: Apache-2.0
"""A drop-in for a unit that exists nowhere is written, and is a warning with the closest name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry
from nodeagent.update.ports.events import Warned
from nodeagent.update.states import Phase
from tests.world import FakeUnit, World
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

SETS = "[Service]\nEnvironment=A=1\n"
TYPO = UnitEntry("kublet.service", dropins={"10-x.conf": SETS})


async def applied(new: MachineConfig) -> Host:
    host = Host(World(units={"kubelet.service": FakeUnit(), "getty@.service": FakeUnit(file="static")}))
    host.want(config("a", {"/etc/quiet/q": "1"}))
    await host.settle()
    host.want(new)
    await host.settle()
    return host


WARNING = "there is no unit kublet.service on this host or in the config; did you mean kubelet.service?"
DROPIN = "/etc/systemd/system/kublet.service.d/10-x.conf"


def warned(host: Host) -> list[str]:
    return [event.message for event in host.world.events if isinstance(event, Warned)]


@pytest.mark.finding(
    "units: drop-ins without a unit", "A drop-in for a unit that exists nowhere is written, and nothing else is done."
)
@pytest.mark.parametrize("new", [config("b", units=[TYPO]), config("b", {DROPIN: SETS})], ids=["unit", "file"])
async def test_a_typing_error_is_a_warning_with_the_right_name(new: MachineConfig) -> None:
    host = await applied(new)
    assert (host.phase, host.configs[host.world.current].name, host.world.boot) == (Phase.IDLE, "b", 1)
    assert host.world.done == []
    assert DROPIN in host.world.disk
    assert host.world.history[-1].message == f"warning: {DROPIN} {WARNING}"
    assert warned(host) == [f"warning: {DROPIN} {WARNING}"]
    host.want(config("c", {"/etc/quiet/q": "1"}))
    await host.settle()
    assert (host.phase, host.world.boot, host.world.done) == (Phase.IDLE, 1, [])
    assert DROPIN not in host.world.disk


async def test_without_a_similar_name_nothing_is_suggested() -> None:
    host = await applied(config("b", units=[UnitEntry("nosuch.service", dropins={"10-x.conf": SETS})]))
    assert host.world.history[-1].message.endswith("there is no unit nosuch.service on this host or in the config")


async def test_more_warnings_than_an_admin_reads_are_counted() -> None:
    host = await applied(config("b", units=[UnitEntry(f"no{n}.service", dropins={"x.conf": SETS}) for n in range(25)]))
    assert host.world.history[-1].message.count("there is no unit") == 20
    assert host.world.history[-1].message.endswith("5 more entries are for units that exist nowhere")


@pytest.mark.finding(
    "users: first trial of configs",
    "Units of the config, of generators, templates and switched-off units are no typing error.",
)
@pytest.mark.parametrize(
    "unit",
    [
        UnitEntry("kubelet.service", dropins={"10-x.conf": SETS}),
        UnitEntry("own.service", contents="[Service]", dropins={"10-x.conf": SETS}),
        UnitEntry("docker.socket", dropins={"off.conf": "[Unit]\nConditionPathExists=/enoent\n"}),
        UnitEntry("absent.service", dropins={"env.conf": "# nothing\n\n[Service]\n"}),
        UnitEntry("pivot.service", dropins={"10-mco-default-env.conf": SETS}),
        UnitEntry("kube-.service", dropins={"10-x.conf": SETS}),
        UnitEntry("getty@.service", dropins={"10-x.conf": SETS}),
    ],
    ids=[
        "of the host",
        "of the config",
        "switched off",
        "empty",
        "of the machine-config-operator",
        "of a prefix",
        "template",
    ],
)
async def test_what_is_no_mistake(unit: UnitEntry) -> None:
    host = await applied(config("b", units=[unit]))
    assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, "b")
    assert warned(host) == []


@pytest.mark.parametrize(
    "files",
    [
        {"/etc/containers/systemd/kublet.container": "[Container]\n"},
        {"/etc/systemd/system/kublet.service": "[Service]\n"},
        {"/etc/init.d/kublet": "#!/bin/sh\n"},
    ],
)
async def test_units_that_files_of_the_config_make(files: dict[str, str]) -> None:
    host = await applied(config("b", files, [TYPO]))
    assert host.phase is Phase.IDLE
    assert warned(host) == []


async def test_instances_of_a_template_of_the_config() -> None:
    files = {"/etc/systemd/system/worker@.service": "[Service]\n"}
    host = await applied(config("b", files, [UnitEntry("worker@1.service", dropins={"10-x.conf": SETS})]))
    assert host.phase is Phase.IDLE


async def test_one_that_is_there_already_is_left_alone() -> None:
    """A drop-in of an older agent, or of another tool, does not stop all later configs."""
    host = Host(World())
    base = config("a", {"/etc/quiet/q": "1"}, [TYPO])
    host.want(base)
    host.world.disk.update(expand(base))
    await host.settle()
    assert host.phase is Phase.IDLE
    host.want(config("b", {"/etc/quiet/q": "2"}, [TYPO]))
    await host.settle()
    assert host.configs[host.world.current].name == "b"


@pytest.mark.finding(
    "commands: usage errors and hints",
    '"nothing was touched" is in the hint alone, and an error names each problem once.',
)
async def test_an_error_is_reported_once_and_names_its_problem_once() -> None:
    template = UnitEntry("own@.service", "[Install]\nWantedBy=multi-user.target\n", enabled=True)
    host = await applied(config("b", units=[template]))
    assert host.phase is Phase.DEGRADED
    for event in host.world.events:
        message = getattr(event, "message", "")
        assert message.count("own@.service: is a template") <= 1
        assert "nothing was touched" not in message


@pytest.mark.finding(
    "users: first trial of configs",
    "Removing a pull secret, and Windows line endings, are warnings in the plan, the journal and the history.",
)
async def test_a_pull_secret_that_is_removed_is_a_warning() -> None:
    host = await applied(config("b", {"/etc/quiet/q": "2"}))
    secret = FileEntry("/var/lib/kubelet/config.json", b'{"auths": {"quay.io": {"auth": "YTpi"}}}')
    host.want(replace(config("c"), files={secret.path: secret}))
    await host.settle()
    host.want(config("d", {"/etc/quiet/q": "3"}))
    await host.settle()
    said = "warning: /var/lib/kubelet/config.json is removed: images of private registries cannot be pulled without it"
    assert (host.world.history[-1].to_name, host.world.history[-1].message) == ("d", said)
    assert [event.message for event in host.world.events if isinstance(event, Warned)] == [said]
