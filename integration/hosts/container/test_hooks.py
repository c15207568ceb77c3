# SPDX-License-Identifier: Apache-2.0
"""Hooks of the admin on a real systemd: each event, rights of their own, and no update that waits for one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import FileSpec, machine_config

HOOKS = "/etc/nodeagent/hooks"
LOG = "/var/hook.log"
POLICY = agent.policy(files={"/etc/quiet": ["None"]})
# One line for each event: what it got, and its rights. It leaves a process in a session of its own.
HOOK = f"""#!/bin/sh
setsid sleep 4252 &
printf '%s %s' "$(grep CapEff /proc/self/status | cut -f2)" "$(cat)" >> {LOG}
echo >> {LOG}
"""
HANGS = "#!/bin/sh\nsetsid sleep 4252 &\nexec sleep 4253\n"


def received(host: Host) -> list[dict[str, Any]]:
    lines = host.read_text(LOG).splitlines() if host.exists(LOG) else []
    return [json.loads(line.partition(" ")[2]) for line in lines if line]


def sleepers(host: Host) -> int:
    return len(host.run(["pgrep", "-f", "sleep 425[23]"], check=False).stdout.split())


def problems(host: Host) -> list[str]:
    return [problem["reason"] for problem in agent.status(host)["problems"]]


def test_hooks_of_a_config_get_each_event_and_hold_nothing(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: POLICY}, settings={"hooks": {"timeout": 2}})
    hooks = {f"{HOOKS}/{event}.d/10-log": FileSpec(HOOK, 0o755) for event in ("waiting", "begun", "finished")}
    agent.apply(host, machine_config("one", files={**hooks, "/etc/quiet": "1"}))
    agent.wait_done(host, "one")
    host.wait_for(lambda: bool(received(host)), "the end of the update that brought it")
    ended = received(host)[-1]
    entry = agent.history(host)[0]
    assert (ended["event"], ended["to"], ended["outcome"]) == ("finished", "one", "done")
    assert ended["update_id"] == entry["update_id"]

    # One that never ends, in the way of nothing.
    hooks[f"{HOOKS}/begun.d/20-hangs"] = FileSpec(HANGS, 0o755)
    agent.apply(host, machine_config("two", files={**hooks, "/etc/quiet": "2"}))
    agent.wait_done(host, "two")
    agent.apply(host, machine_config("three", files={**hooks, "/etc/quiet": "3"}))
    agent.wait_done(host, "three")
    host.wait_for(
        lambda: received(host)[-1]["to"] == "three" and received(host)[-1]["event"] == "finished", "the last event"
    )
    assert [(each["event"], each["to"]) for each in received(host)] == [
        ("finished", "one"),
        ("begun", "two"),
        ("finished", "two"),
        ("begun", "three"),
        ("finished", "three"),
    ]
    host.wait_for(lambda: sleepers(host) == 0, "no process is left")
    # The daemon has six capabilities; a hook has those of any service.
    rights = {int(line.partition(" ")[0], 16).bit_count() > 20 for line in host.read_text(LOG).splitlines() if line}
    assert rights == {True}

    host.run(["nodeagent", "maintenance", "start", "--reason", "disk swap"])
    agent.apply(host, machine_config("four", files={**hooks, "/etc/unlisted": "4"}))
    host.wait_for(lambda: received(host)[-1]["event"] == "waiting", "the wait for the lease")
    assert (received(host)[-1]["reason"], received(host)[-1]["to"]) == ("LeaseHeld", "four")
    host.wait_for(
        lambda: not host.run(["systemctl", "list-units", "--all", "--no-legend", "nodeagent-hook-*"]).stdout,
        "no unit of a hook is left",
    )


@pytest.mark.long
def test_a_failed_hook_is_shown_and_an_unsafe_one_does_not_run(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: POLICY})
    path = f"{HOOKS}/finished.d/10-fails"
    host.write(path, "#!/bin/sh\necho password=hunter2; exit 3\n", mode=0o755)
    agent.apply(host, machine_config("one", files={"/etc/quiet": "1"}))
    agent.wait_done(host, "one")
    host.wait_for(lambda: problems(host) == ["HookFailed"], "the failure is a problem")
    assert agent.occurrences(host, ["hunter2"]) == []
    host.run(["chmod", "0777", path])
    agent.apply(host, machine_config("two", files={"/etc/quiet": "2"}))
    agent.wait_done(host, "two")
    host.wait_for(lambda: problems(host) == ["HookUnsafe"], "a hook that others can write")
    host.write(path, HOOK, mode=0o755)
    agent.apply(host, machine_config("three", files={"/etc/quiet": "3"}))
    agent.wait_done(host, "three")
    host.wait_for(lambda: problems(host) == [], "the next hook ended without a failure")
    # A kill of the agent ends the hook that is under way with the next start, and the hook runs again.
    host.write(path, HANGS, mode=0o755)
    agent.apply(host, machine_config("four", files={"/etc/quiet": "4"}))
    agent.wait_done(host, "four")
    host.wait_for(lambda: sleepers(host) == 2, "the hook hangs")
    host.kill(agent.UNIT)
    host.write(path, HOOK, mode=0o755)
    host.run(["systemctl", "start", agent.UNIT])
    host.wait_for(lambda: received(host)[-1]["to"] == "four", "the end of the update, after the start", 120)
    host.wait_for(lambda: sleepers(host) == 0, "nothing is left")
    agent.apply(host, machine_config("five", files={"/etc/quiet": "5"}))
    agent.wait_done(host, "five")
    host.wait_for(lambda: received(host)[-1]["to"] == "five", "the next one")
    assert [each["to"] for each in received(host)] == ["three", "four", "five"], "each once"
