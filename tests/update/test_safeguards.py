# SPDX-License-Identifier: Apache-2.0
"""A config that removes most entries, or the last way to log in, is a mistake until an operator confirms it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig, UserEntry
from nodeagent.core.config.paths import ssh_keys_path
from nodeagent.errors import Refused, Unreconcilable
from nodeagent.reasons import hint
from nodeagent.update.ports.events import ConfigRefused
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.states import Phase
from tests.agent.test_api import api
from tests.world import World
from tests.world.run import Host, config, kinds

pytestmark = pytest.mark.looptime

LOGIN = pytest.mark.finding(
    "users: the last way in", "No config takes away the last way to log in as core, from whatever source."
)
MOST = pytest.mark.finding(
    "users: configs that remove most entries",
    "A config that removes most entries waits until an operator confirms the number.",
)

KEYS = ssh_keys_path("core")
BODY = (11).to_bytes(4, "big") + b"ssh-ed25519" + (32).to_bytes(4, "big") + bytes(32)
KEY = f"ssh-ed25519 {base64.b64encode(BODY).decode()} me"
HASH = f"$y$j9T$abc${'a' * 43}"
FILES = {"/etc/site": "x"}
WITH_KEY = config("with-key", FILES, keys=[KEY])
WITH_PASSWORD = config("with-password", FILES, password=HASH)
WITHOUT = config("without", FILES)
NO_KEYS = MachineConfig("no-keys", files=WITHOUT.files, users={"core": UserEntry("core")})
LOCKED = config("locked", FILES, password="!")
BIG = config("big", {f"/etc/site/{number}": "x" for number in range(12)})
SMALL = config("small", {"/etc/site/0": "x"})


async def at(first: MachineConfig, host: Host | None = None) -> Host:
    host = host or Host(World())
    host.want(first)
    await host.settle()
    assert host.phase is Phase.IDLE, host.record
    return host


@LOGIN
@pytest.mark.parametrize("first", [WITH_KEY, WITH_PASSWORD], ids=lambda config: config.name)
@pytest.mark.parametrize("wanted", [WITHOUT, NO_KEYS, LOCKED], ids=lambda config: config.name)
async def test_the_last_way_in_is_kept(first: MachineConfig, wanted: MachineConfig) -> None:
    host = await at(first)
    before = (dict(host.world.disk), dict(host.world.passwords))
    host.want(wanted)
    await host.settle()
    assert set(kinds(host, ConfigRefused)) == {"Lockout"}
    assert (dict(host.world.disk), dict(host.world.passwords)) == before
    for call in (api(host).plan, api(host).apply):
        with pytest.raises(Unreconcilable, match="locked out") as caught:
            await call(host.wanted)
        assert caught.value.reason == "Lockout"
        assert "--allow-lockout" in (caught.value.hint or "")


@LOGIN
@pytest.mark.parametrize(
    ("first", "wanted"),
    [(WITH_KEY, WITH_PASSWORD), (WITH_PASSWORD, WITH_KEY), (WITHOUT, NO_KEYS), (WITHOUT, LOCKED), (NO_KEYS, WITHOUT)],
    ids=lambda config: config.name,
)
async def test_another_way_in_or_none_before_is_no_obstacle(first: MachineConfig, wanted: MachineConfig) -> None:
    host = await at(first)
    await at(wanted, host)


@LOGIN
async def test_a_key_of_the_host_that_comes_back_is_a_way_in() -> None:
    host = Host(World())
    own = RegularFile(KEY.replace("me", "own").encode(), 0o600)
    host.world.disk[KEYS] = own
    await at(WITH_KEY, host)
    await at(WITHOUT, host)
    assert host.world.disk[KEYS] == own


@LOGIN
@pytest.mark.parametrize("top", ["", "/var"])
async def test_keys_in_a_file_of_the_config(top: str) -> None:
    """On ostree hosts, both paths lead to the same file."""
    path = f"{top}/home/core/.ssh/authorized_keys"
    host = await at(config("file", {**FILES, path: KEY}))
    host.world.disk["/home/core/.ssh/authorized_keys"] = host.world.disk[path]
    host.want(WITHOUT)
    await host.settle()
    assert set(kinds(host, ConfigRefused)) == {"Lockout"}
    await at(config("same", {**FILES, "/home/core/.ssh/authorized_keys": KEY}), host)


@LOGIN
async def test_an_operator_may_lock_core_out() -> None:
    host = await at(WITH_KEY)
    host.wanted = host.add(WITHOUT)
    loop = host.build()
    digest = await api(host, loop=loop).apply(host.wanted, lockout=True)
    assert digest == host.wanted
    await host.turn_and_settle(loop)
    assert host.phase is Phase.IDLE
    assert KEYS not in host.world.disk


@MOST
async def test_a_much_smaller_config_waits() -> None:
    host = await at(BIG)
    host.want(SMALL)
    await host.settle()
    assert set(kinds(host, ConfigRefused)) == {"RemovesMost"}
    assert len([path for path in host.world.disk if path.startswith("/etc/site/")]) == 12


@MOST
async def test_apply_needs_the_number() -> None:
    host = await at(BIG)
    host.wanted = host.add(SMALL)
    for removes in (0, 1, 12):
        with pytest.raises(Refused, match="removes 11 of 12 entries") as caught:
            await api(host).apply(host.wanted, removes=removes)
        assert (caught.value.reason, "--remove 11" in (caught.value.hint or "")) == ("RemovesMost", True)
    assert "--remove 11" in await api(host).plan(host.wanted)
    loop = host.build()
    await api(host, loop=loop).apply(host.wanted, removes=11)
    await host.turn_and_settle(loop)
    assert (host.phase, host.world.history[-1].to_name) == (Phase.IDLE, "small")


@MOST
@pytest.mark.parametrize(("kept", "waits"), [(4, True), (5, False), (6, False)])
async def test_half_of_ten_is_not_most(kept: int, waits: bool) -> None:
    host = await at(config("ten", {f"/etc/site/{number}": "x" for number in range(10)}))
    host.wanted = host.add(config("fewer", {f"/etc/site/{number}": "x" for number in range(kept)}))
    if waits:
        with pytest.raises(Refused):
            await api(host).apply(host.wanted)
    else:
        await api(host).apply(host.wanted)


@MOST
async def test_few_entries_may_all_leave() -> None:
    host = await at(config("nine", {f"/etc/site/{number}": "x" for number in range(9)}))
    await at(config("none"), host)


PART = [replace(config("chrony", {"/etc/chrony.conf": "x"}), pool="worker"), config("99-chrony", {"/etc/x": "x"})]


@MOST
@pytest.mark.parametrize("part", PART, ids=lambda part: part.name)
async def test_a_part_of_a_config_is_not_applied_alone(part: MachineConfig) -> None:
    """Also where the current config has few entries."""
    host = await at(config("three", {f"/etc/site/{number}": "x" for number in range(3)}))
    host.wanted = host.add(part)
    plan = await api(host).plan(host.wanted)
    assert "looks like a part of a config" in plan
    assert json.loads(plan)["removal"] == {"removed": 3, "total": 3, "part": True}
    with pytest.raises(Refused, match="removes 3 of 3 entries, and it looks like a part of a config") as caught:
        await api(host).apply(host.wanted)
    assert "nodeagent apply FILE FILE ... merges them" in (caught.value.hint or "")
    # Written to the file, it waits. Confirmed, it is applied.
    host.want(part)
    await host.settle()
    assert set(kinds(host, ConfigRefused)) == {"RemovesMost"}
    loop = host.build()
    await api(host, loop=loop).apply(host.wanted, removes=3)
    await host.turn_and_settle(loop)
    assert (host.phase, host.world.history[-1].to_name) == (Phase.IDLE, part.name)
    # From then on the config of this host is one, and so is the next.
    await at(replace(config("98-other", {"/etc/y": "y"}), pool="worker"), host)


@MOST
async def test_a_part_that_removes_few_entries_is_applied() -> None:
    host = await at(config("two", {f"/etc/site/{number}": "x" for number in range(2)}))
    await at(config("50-one", {"/etc/site/0": "x"}), host)


@MOST
@pytest.mark.parametrize(("name", "passes"), [("rendered-worker-0a", True), ("99-worker-chrony", False)])
async def test_a_rendered_config_is_complete(name: str, passes: bool) -> None:
    host = await at(BIG)
    host.from_cluster = True
    host.want(config(name, {"/etc/site/0": "x"}))
    await host.settle()
    assert host.world.history[-1].to_name == (name if passes else "big")


WAY = pytest.mark.finding("configs: refused before the question", "In a cluster, a hint names what works there.")


@WAY
async def test_the_way_out_in_a_cluster_is_one() -> None:
    host = await at(BIG)
    host.from_cluster = True
    host.want(config("99-small", {"/etc/site/0": "x"}))
    await host.settle()
    assert set(kinds(host, ConfigRefused)) == {"RemovesMost"}
    assert "half at a time" in hint("RemovesMost")
    notes = json.loads(await api(host, path="").plan(host.wanted))["notes"]
    assert [note for note in notes if "more than half" in note]
    assert not [note for note in notes if "apply" in note]
    for left in (6, 3, 1):
        host.want(config(f"99-{left}", {f"/etc/site/{number}": "x" for number in range(left)}))
        await host.settle()
        assert host.world.history[-1].to_name == f"99-{left}"


@WAY
async def test_a_plan_of_a_rendered_config_warns_of_no_number() -> None:
    host = await at(BIG)
    rendered = host.add(config("rendered-worker-0a", {"/etc/site/0": "x"}))
    answer = json.loads(await api(host, path="").plan(rendered))
    assert (answer["by_cluster"], answer["removal"]) == (True, {"removed": 11, "total": 12, "part": False})
    assert not [note for note in answer["notes"] if "remove" in note]


@MOST
async def test_a_rollback_is_a_confirmation() -> None:
    host = await at(SMALL)
    small = host.wanted
    big = (await at(BIG, host)).wanted
    host.wanted = small
    await host.ask(avoid=big)
    assert host.world.history[-1].to_name == "small"


def test_a_request_has_what_was_confirmed() -> None:
    assert ApplyRequest("d").confirmed is None
    found = ApplyRequest("d", removes=3, lockout=True).confirmed
    assert found is not None
    assert (found.digest, found.removes, found.lockout) == ("d", 3, True)
