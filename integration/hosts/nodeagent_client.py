# SPDX-License-Identifier: Apache-2.0
"""A client of nodeagent on a test host: configs and settings for it, requests to it, and waits for its state.

Configs are built as JSON text, because that is what both `nodeagent apply` and the watched file take. What every test
does is asked for over the host's bus, as `nodeagent apply` and `nodeagent history` do: a poll must cost less than what
it watches.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from integration.hosts import bus
from integration.hosts.errors import CommandFailed, HostRingError, HostTimeout
from integration.hosts.snapshot import Entry
from integration.hosts.testhost import TestHost

UNIT = "nodeagent.service"
NAME = "org.nodeagent.Agent1"
PATH = "/org/nodeagent/Agent1"
MANAGER = f"{NAME}.Manager"
DESIRED = "/etc/nodeagent/machineconfig.yaml"
POLICY = "/etc/nodeagent/policy.yaml"
SETTINGS = "/etc/nodeagent/config.d/50-ring.yaml"
STORE = "/var/lib/nodeagent/state.db"
BLOCKER = "backup.service"

FAST: Mapping[str, Any] = {
    "actions": {"timeout": 8, "settle": 0.3},
    "reboot": {"warn_users": 0, "inhibitor_wait": 20},
    "verify": {"timeout": 20},
}
"""Settings with which nothing takes longer than a test wants to wait; everything else is as shipped."""

DEGRADED_LASTS = 3.0  # seconds after which a Degraded is about the config that is waited for
DONE_TIMEOUT = 180.0  # seconds for an update without a reboot, on a busy machine
REBOOT_TIMEOUT = 180.0
RECENT = 1000  # entries of the history: all


@dataclass(frozen=True, slots=True)
class FileSpec:
    content: str | bytes
    mode: int = 0o644
    user: str | int | None = None
    group: str | int | None = None


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """`enabled` None leaves it to the preset, as in Ignition."""

    contents: str | None = None
    enabled: bool | None = None
    mask: bool | None = None
    dropins: Mapping[str, str] = field(default_factory=dict)


def machine_config(
    name: str,
    *,
    files: Mapping[str, str | bytes | FileSpec] | None = None,
    units: Mapping[str, UnitSpec] | None = None,
    keys: Sequence[str] | None = None,
    password_hash: str | None = None,
    **spec: Any,
) -> str:
    """A MachineConfig as JSON. `keys` and `password_hash` are those of core; `spec` is what else goes below spec."""
    ignition: dict[str, Any] = {"ignition": {"version": "3.4.0"}}
    if files:
        ignition["storage"] = {"files": [_file(path, content) for path, content in files.items()]}
    if units:
        ignition["systemd"] = {"units": [_unit(unit, about) for unit, about in units.items()]}
    if keys is not None or password_hash is not None:
        core: dict[str, Any] = {"name": "core"}
        if keys is not None:
            core["sshAuthorizedKeys"] = list(keys)
        if password_hash is not None:
            core["passwordHash"] = password_hash
        ignition["passwd"] = {"users": [core]}
    return json.dumps(
        {
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {"name": name},
            "spec": {"config": ignition, **spec},
        }
    )


def password_hash(word: str) -> str:
    """Text in the form of a SHA-512 hash, which no password has."""
    return f"$6$salt${word:.<86}"


def _file(path: str, given: str | bytes | FileSpec) -> dict[str, Any]:
    about = given if isinstance(given, FileSpec) else FileSpec(given)
    data = about.content.encode() if isinstance(about.content, str) else about.content
    entry: dict[str, Any] = {
        "path": path,
        "mode": about.mode,
        "overwrite": True,
        "contents": {"source": f"data:;base64,{base64.b64encode(data).decode()}"},
    }
    for key, owner in (("user", about.user), ("group", about.group)):
        if owner is not None:
            entry[key] = {"name": owner} if isinstance(owner, str) else {"id": owner}
    return entry


def _unit(name: str, about: UnitSpec) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name}
    for key, value in (("contents", about.contents), ("enabled", about.enabled), ("mask", about.mask)):
        if value is not None:
            entry[key] = value
    if about.dropins:
        entry["dropins"] = [{"name": dropin, "contents": text} for dropin, text in about.dropins.items()]
    return entry


def policy(
    *, files: Mapping[str, Sequence[str]] | None = None, units: Mapping[str, Sequence[str]] | None = None
) -> str:
    """A MachineConfiguration; actions are written as in a plan: "None", "DaemonReload", "Restart crio.service"."""
    disruption = {
        "files": [{"path": path, "actions": [_action(a) for a in actions]} for path, actions in (files or {}).items()],
        "units": [{"name": name, "actions": [_action(a) for a in actions]} for name, actions in (units or {}).items()],
    }
    return json.dumps(
        {
            "apiVersion": "operator.openshift.io/v1",
            "kind": "MachineConfiguration",
            "metadata": {"name": "cluster"},
            "spec": {"nodeDisruptionPolicy": {key: value for key, value in disruption.items() if value}},
        }
    )


def _action(text: str) -> dict[str, Any]:
    kind, _, unit = text.partition(" ")
    return {"type": kind, kind.lower(): {"serviceName": unit}} if unit else {"type": kind}


def settings(host: TestHost, changes: Mapping[str, Any] | None = None) -> None:
    """Put FAST with `changes` (merged one level deep) in place. Takes effect at the next start or reload."""
    merged: dict[str, Any] = {key: dict(value) for key, value in FAST.items()}
    for key, value in (changes or {}).items():
        merged[key] = {**merged.get(key, {}), **value} if isinstance(value, Mapping) else value
    host.write(SETTINGS, json.dumps(merged))


# Asking


def status(host: TestHost) -> dict[str, Any]:
    """Return the status of the daemon. Raises CommandFailed while it does not run."""
    answer: dict[str, Any] = json.loads(bus.get(host, NAME, PATH, f"{NAME}.Status", "Status"))
    return answer


def history(host: TestHost) -> list[dict[str, Any]]:
    """The newest first. Raises CommandFailed while there is no daemon."""
    answer = json.loads(bus.ask(host, NAME, PATH, MANAGER, "History", "u", (RECENT,))[0])
    updates: list[dict[str, Any]] = answer["updates"]
    return updates


def outcomes(host: TestHost) -> list[tuple[str, str]]:
    """Name of the config and how the update to it ended, the oldest first."""
    return [(entry["to_name"], entry["outcome"]) for entry in reversed(history(host))]


def update_journal(host: TestHost, update_id: str) -> list[dict[str, str]]:
    """Everything that the journal has on one update, the oldest first, debug entries included."""
    return host.journal(match={"NODEAGENT_UPDATE_ID": update_id})


def managed(host: TestHost) -> dict[str, Entry]:
    """A snapshot of everywhere that a config may write to, without the desired config itself."""
    found = host.snapshot(*(path for path in ("/etc", "/var/home", "/var/lib/kubelet") if host.exists(path)))
    found.pop(DESIRED, None)
    return found


def unit_events(host: TestHost, *units: str, since: int = 0) -> list[str]:
    """Return the events of these stand-ins as "unit event", oldest first, without the first `since`."""
    noted = [f"{event.unit} {event.event}" for event in host.events()][since:]
    return [line for line in noted if not units or line.split()[0] in units]


# Changing


def apply(host: TestHost, config: str) -> None:
    """Make `config` the desired one; returns when it was accepted. Raises CommandFailed if it is refused."""
    bus.order(host, NAME, PATH, MANAGER, "Apply", "sa{sv}", (config, {}), DONE_TIMEOUT)


def apply_command(
    host: TestHost,
    config: str,
    *options: str,
    check: bool = True,
    user: str | None = None,
    timeout: float = DONE_TIMEOUT,
) -> subprocess.CompletedProcess[str]:
    """`nodeagent apply - OPTIONS`: without `--wait` it returns when the config was accepted."""
    return host.run(["nodeagent", "apply", *options, "-"], stdin=config, check=check, user=user, timeout=timeout)


def write_desired(host: TestHost, config: str) -> None:
    """Write the file as a tool does that knows only its path."""
    host.write(DESIRED, config, mode=0o600)


# Waiting


def block_reboots(host: TestHost) -> None:
    """Run a program that does not want a shutdown now, until `unblock_reboots`."""
    inhibit = ["systemd-inhibit", "--what=shutdown", "--mode=block", "--who=backup", "--why=nightly backup"]
    host.run(["systemd-run", f"--unit={BLOCKER}", *inhibit, "sleep", "infinity"])
    listed = ["systemd-inhibit", "--list", "--no-legend"]
    host.wait_for(lambda: "nightly backup" in host.run(listed).stdout, "the inhibitor is there")


def unblock_reboots(host: TestHost) -> None:
    host.run(["systemctl", "stop", BLOCKER])


def wait_phase(
    host: TestHost, *phases: str, reason: str | None = None, timeout: float = DONE_TIMEOUT
) -> dict[str, Any]:
    """Return the first status in one of these phases, and with this reason if one is given.

    A phase is entered before the first attempt of its work, so the reason of a wait is reported after the phase.
    """

    def reached() -> dict[str, Any] | None:
        now = status(host)
        return now if now["phase"] in phases and reason in (None, now["reason"]) else None

    return host.wait_for(reached, f"phase {' or '.join(phases)}", timeout)


def wait_done(host: TestHost, name: str, timeout: float = DONE_TIMEOUT, *, after: str = "") -> dict[str, Any]:
    """Wait until the config `name` is current and nothing is under way; fails soon if the agent degrades.

    `after` is the `since` of a status that is over, where the same config has failed before.
    """
    last: dict[str, Any] = {}
    degraded: dict[str, float] = {}  # when a Degraded was seen first, by its `since`

    def done() -> dict[str, Any] | None:
        nonlocal last
        last = status(host)
        if last["phase"] not in ("Idle", "Degraded") or (after and last["since"] == after):
            return None
        if last["phase"] == "Idle":
            return last if last["current"] == name else None
        # `desired` is the new config already while the phase is still about the one before.
        first = degraded.setdefault(last["since"], time.monotonic())
        lasts = time.monotonic() - first >= DEGRADED_LASTS
        return last if lasts and last["desired"] in ("", name) else None

    try:
        end = host.wait_for(done, f"{name} is the current config", timeout)
    except HostTimeout as error:
        raise HostTimeout(f"{error}\n--- last status: {json.dumps(last)}") from None
    if end["phase"] == "Degraded":
        raise HostTimeout(f"degraded on the way to {name}: {end['reason']}: {end['message']}\n{host.journal_tail()}")
    return end


def wait_outcome(host: TestHost, name: str, timeout: float = REBOOT_TIMEOUT) -> dict[str, Any]:
    """The history's entry of the update to `name`, when it has ended in whatever way and the agent is at rest."""

    def ended() -> dict[str, Any] | None:
        if status(host)["phase"] not in ("Idle", "Degraded"):
            return None
        return next((entry for entry in history(host) if entry["to_name"] == name), None)

    return host.wait_for(ended, f"the update to {name} ends", timeout, every=0.2)


def wait_daemon(host: TestHost, timeout: float = 60.0) -> None:
    """Wait until it answers on the bus, e.g. after a restart. Fails at once if systemd does not start it again."""

    def up() -> bool:
        try:
            return bool(status(host))
        except CommandFailed:
            # A daemon that was just killed is `activating` until systemd restarts it, with the result of the kill.
            if host.unit(UNIT, "ActiveState")["ActiveState"] == "failed":
                raise HostRingError(f"the daemon failed\n{host.journal_tail()}") from None
            raise

    host.wait_for(up, "the daemon answers", timeout)


def occurrences(host: TestHost, needles: Iterable[str]) -> list[str]:
    """Which of `needles` occur anywhere in the whole journal of the host, in any field."""
    exported = host.run(["journalctl", "--output=export", "--all", "--quiet", "--no-pager"]).stdout
    return [needle for needle in needles if needle in exported]
