# SPDX-License-Identifier: Apache-2.0
"""What leaves a config is planned as what happens: the host's own version comes back."""

from __future__ import annotations

import json

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.sides import HostView
from nodeagent.domains import default_policy
from nodeagent.update.states import Phase
from tests.agent.test_api import api
from tests.update.test_safeguards import KEY, KEYS, WITH_KEY, at
from tests.world import World
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

BACK = pytest.mark.finding(
    "users: entries that leave", "An entry that leaves is planned as what comes back: the host's own version."
)
REGISTRIES = "/etc/containers/registries.conf"


async def planned(host: Host, wanted: MachineConfig) -> dict[str, dict[str, object]]:
    answer = json.loads(await api(host).plan(host.add(wanted), diff=True))
    return {f"{each['domain']}:{each['key']}": each for each in answer["changes"]}


@BACK
@pytest.mark.finding(
    "plans: versions of the host that come back", "A plan says that the host's own version comes back."
)
async def test_a_file_of_the_host_comes_back() -> None:
    host = Host(World())
    host.world.disk["/etc/site/x"] = RegularFile(b"own\n", 0o600)
    await at(config("a", {"/etc/site/x": "1\n", "/etc/site/new": "1\n", "/etc/other": "1\n"}), host)
    found = await planned(host, config("b", {"/etc/other": "1\n"}))
    own = found["file:/etc/site/x"]
    assert "+own" in str(own["diff"])
    assert {"what": "restores", "after": "the host's own version"} in own["details"]  # type: ignore[operator]
    assert {"what": "content", "added": 1, "removed": 1} in own["details"]  # type: ignore[operator]
    assert "/dev/null" in str(found["file:/etc/site/new"]["diff"])
    await at(config("b", {"/etc/other": "1\n"}), host)
    assert host.world.disk["/etc/site/x"] == RegularFile(b"own\n", 0o600)


@BACK
async def test_the_key_of_the_host_is_announced() -> None:
    host = Host(World())
    host.world.disk[KEYS] = RegularFile(KEY.replace("me", "own").encode(), 0o600)
    await at(WITH_KEY, host)
    key = (await planned(host, config("b", {"/etc/site": "x"})))["sshkey:core"]
    assert {"what": "restores", "after": "the host's own keys"} in key["details"]  # type: ignore[operator]


@BACK
async def test_what_does_not_change_needs_no_action() -> None:
    """The config has the text that the host had, after another one in between."""
    host = Host(World())
    host.world.disk["/etc/moved"] = RegularFile(b"own")
    await at(config("a", {"/etc/moved": "1"}), host)
    await at(config("b", {"/etc/moved": "own"}), host)
    before = host.world.boot
    await at(config("c"), host)
    assert (host.phase, host.world.boot, host.world.history[-1].disruption) == (Phase.IDLE, before, "none")
    assert host.world.disk["/etc/moved"] == RegularFile(b"own")


@BACK
@pytest.mark.parametrize(("restored", "drains"), [(True, False), (False, True)])
def test_the_domains_judge_what_comes_back(restored: bool, drains: bool) -> None:
    text = b'unqualified-search-registries = ["registry.example"]\n'
    old = MachineConfig("a", files={REGISTRIES: FileEntry(REGISTRIES, text)})
    back = {REGISTRIES: RegularFile(b"# of the OS\n" + text)} if restored else {}
    plan = make_plan(old, MachineConfig("b"), default_policy(), host=HostView(restored=back))
    assert plan.drain == drains
