"""A drop-in for a unit that does not exist is refused before anything is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry
from nodeagent.core.update.events import Warned
from nodeagent.core.update.phase import Phase
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


async def test_a_typing_error_is_refused_and_the_right_name_is_named() -> None:
    host = await applied(config("b", units=[TYPO]))
    assert (host.phase, host.record.reason, host.world.done) == (Phase.DEGRADED, "InvalidInput", [])
    event, *_ = [event for event in host.world.events if "kublet" in getattr(event, "message", "")]
    assert "/etc/systemd/system/kublet.service.d/10-x.conf: there is no unit kublet.service" in event.message
    assert "did you mean kubelet.service?" in event.message


async def test_without_a_similar_name_nothing_is_suggested() -> None:
    host = await applied(config("b", units=[UnitEntry("nosuch.service", dropins={"10-x.conf": SETS})]))
    assert host.record.message.endswith("there is no unit nosuch.service on this host or in the config")


async def test_nor_as_a_plain_file() -> None:
    path = "/etc/systemd/system/kublet.service.d/10-x.conf"
    host = await applied(config("b", {path: SETS}))
    assert host.phase is Phase.DEGRADED


@pytest.mark.finding("A5", "Units of the config, of generators, templates and switched-off units are no typing error.")
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


@pytest.mark.finding("A7", '"nothing was touched" is in the hint alone, and an error names each problem once.')
async def test_an_error_is_reported_once_and_names_its_problem_once() -> None:
    host = await applied(config("b", units=[TYPO]))
    for event in host.world.events:
        message = getattr(event, "message", "")
        assert message.count("there is no unit kublet.service") <= 1
        assert "nothing was touched" not in message


@pytest.mark.finding(
    "A5",
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
