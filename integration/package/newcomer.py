# SPDX-License-Identifier: Apache-2.0
"""The first week on a host where nodeagent was just installed, typed on a terminal: a first config, a first rollback,
and a first failure that the commands themselves explain."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from integration.hosts.container.container_host import Host
from integration.tutorial import Typist

SETTINGS = "recommended_policy: true\nactions: {settle: 1}\nreboot: {warn_users: 0}\n"
SITE = "/etc/motd.d/site"
GOOD = "[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
BROKEN = GOOD.replace("sleep infinity", "false")
QUESTION = re.compile(r"\? .*\[y/N\] y$")


def config(name: str, motd: str, units: Mapping[str, str]) -> str:
    """Return a MachineConfig as a newcomer writes it."""
    entries = [{"name": unit, "enabled": True, "contents": contents} for unit, contents in units.items()]
    spec = {
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": SITE, "mode": 0o644, "contents": {"source": f"data:,{motd}%0A"}}]},
        "systemd": {"units": entries},
    }
    kind = {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig"}
    return json.dumps({**kind, "metadata": {"name": name}, "spec": {"config": spec}}, indent=2) + "\n"


def first_week(host: Host) -> None:
    """Type the story on a booted host whose agent has no config yet. The host reboots once."""
    files = {
        "first": config("first", "hello", {}),
        "second": config("second", "hello", {"hello.service": GOOD}),
        "broken": config("broken", "hello", {"hello.service": GOOD, "broken.service": BROKEN}),
    }
    for name, text in files.items():
        host.write(f"/root/{name}.yaml", text, mode=0o600)
    host.write("/root/50-site.yaml", SETTINGS)
    with Typist(host) as typist:
        _first_config(typist, host)
        _first_rollback(typist, host)
        _first_failure(typist, host)


def _typed(typist: Typist, command: str, *, reboots: bool = False) -> str:
    return "\n".join(typist.output(command, [], reboots=reboots))


def _first_config(typist: Typist, host: Host) -> None:
    assert re.search(r"current +none yet", _typed(typist, "nodeagent status"))
    _typed(typist, "install -D -m 0644 50-site.yaml /etc/nodeagent/config.d/50-site.yaml")
    assert "settings: good" in _typed(typist, "nodeagent settings check")
    _typed(typist, "systemctl reload nodeagent")
    plan = _typed(typist, "nodeagent plan first.yaml")
    assert re.search(rf"added +file:{SITE} +recommended +None", plan), plan
    assert not host.exists(SITE), "a plan changes nothing"
    assert "done: first is the current config" in _typed(typist, "nodeagent apply --wait first.yaml")
    assert host.read_text(SITE) == "hello\n"
    done = _typed(typist, "nodeagent apply --wait second.yaml")
    assert "Start hello.service" in done, done
    assert "done: second is the current config" in done, done
    assert host.is_active("hello.service")
    assert _typed(typist, "nodeagent verify") == "this host matches second"


def _first_rollback(typist: Typist, host: Host) -> None:
    done = _typed(typist, "nodeagent rollback --wait")
    assert re.search(r"removed +unit:hello\.service", done), done
    assert "Stop hello.service" in done, done
    assert "done: first is the current config" in done, done
    assert not host.is_active("hello.service")
    assert "done: second is the current config" in _typed(typist, "nodeagent apply --wait second.yaml")


def _first_failure(typist: Typist, host: Host) -> None:
    """From the status to the reason, and from the history to the unit, with the commands that the output names."""
    begun = _typed(typist, "nodeagent apply broken.yaml", reboots=True)
    assert "if an action fails: a reboot" in begun, begun
    assert any(QUESTION.search(line) for line in begun.splitlines()), begun
    status = _typed(typist, "nodeagent status")
    assert re.search(r"phase +Degraded \(Reverted\)", status), status
    assert "broken.service" in status
    named = re.search(r"see +(nodeagent explain \w+)", status)
    assert named is not None, status
    explained = _typed(typist, named[1])
    assert re.search(r"means +The update failed, and the previous config is restored", explained), explained
    assert "what to do" in explained
    assert "nodeagent history" in explained
    assert re.search(r"broken +reverted", _typed(typist, "nodeagent history"))
    assert "broken.service" in _typed(typist, "nodeagent history show")
    # The same config again is announced as what it is.
    assert "broken failed on this host at " in _typed(typist, "nodeagent plan broken.yaml")
    assert host.is_active("hello.service"), "the previous config is in force"
    assert not host.exists("/etc/systemd/system/broken.service")
    assert "second is the current config" in _typed(typist, "nodeagent apply --wait second.yaml")
    assert re.search(r"phase +Idle", _typed(typist, "nodeagent status"))
