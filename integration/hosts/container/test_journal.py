# SPDX-License-Identifier: Apache-2.0
"""The entries of an update in the journal: fields, ids with an explanation, few lines, and no secret anywhere."""

from __future__ import annotations

import base64
import json
import re

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import (
    ANCHOR,
    APP,
    CERTIFICATE,
    MIRRORED,
    POLICY_JSON,
    PULL_SECRET,
    REGISTRIES,
    SIGNED,
    SSH_KEY,
)
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import FileSpec, UnitSpec, machine_config, update_journal, wait_done

INFO = 6
CREDENTIALS = "robot:hunter2-of-the-registry"
AUTH = base64.b64encode(CREDENTIALS.encode()).decode()
PASSWORD_HASH = (
    "$6$pepperandsalt$0yO1ZK8PvTn2Wg5xUeLqRbQ7cXsDfHjMaVtBkNwGiEoYpSzC4lJr9uA3mId6Fh8TyXv1OqLsWnBkRcZeUgPjD."
)
PRIVATE_KEY = "MHcCAQEEIBringringringringringringringringringringringriAoGCCqGSM49"
PEM = f"-----BEGIN EC PRIVATE KEY-----\n{PRIVATE_KEY}\n-----END EC PRIVATE KEY-----\n"
SALTED = PASSWORD_HASH.split("$")[3]


def secrets() -> list[str]:
    plain = [CREDENTIALS, "hunter2-of-the-registry", AUTH, PASSWORD_HASH, SALTED, PRIVATE_KEY]
    encoded = [base64.b64encode(text.encode()).decode() for text in (PEM, pull_secret())]
    # Any 40 characters of the encoded whole are as good as all of it.
    return [*plain, *(text[40:80] for text in encoded)]


def pull_secret(auth: str = AUTH) -> str:
    return json.dumps({"auths": {"quay.example.com": {"auth": auth, "email": "robot@example.com"}}})


def config(name: str, *, salt: str = "", **more: str) -> str:
    files: dict[str, str | bytes | FileSpec] = {
        PULL_SECRET: FileSpec(pull_secret(), 0o600),
        "/etc/app/key.pem": FileSpec(PEM + salt, 0o600),
        **more,
    }
    return machine_config(name, files=files, password_hash=PASSWORD_HASH, keys=[SSH_KEY])


def test_an_update_is_logged_in_few_lines_with_fields(make_node: HostMaker) -> None:
    policy = agent.policy(files={"/etc/many": ["None"]}, units={"app.service": ["DaemonReload", "Restart app.service"]})
    host = make_node(files={agent.POLICY: policy})
    files: dict[str, str | bytes | FileSpec] = {f"/etc/many/{number}": "x" for number in range(40)}
    files |= {REGISTRIES: MIRRORED, POLICY_JSON: SIGNED, ANCHOR: CERTIFICATE}
    units = {"app.service": UnitSpec(APP, enabled=True)}
    agent.apply(host, machine_config("reported", files=files, units=units))
    wait_done(host, "reported")
    newest = agent.history(host)[0]
    entries = update_journal(host, newest["update_id"])
    visible = [entry for entry in entries if int(entry["PRIORITY"]) <= INFO]
    lines = "\n".join(entry["MESSAGE"] for entry in visible)
    assert 8 <= len(visible) <= 14, lines
    assert all(entry["SYSLOG_IDENTIFIER"] == "nodeagent" for entry in entries)
    assert all(entry["_SYSTEMD_UNIT"] == agent.UNIT for entry in entries)
    assert all(re.fullmatch("[0-9a-f]{32}", entry["MESSAGE_ID"]) for entry in entries)
    phases = [entry["NODEAGENT_PHASE"] for entry in visible if entry["NODEAGENT_PHASE"] != "Idle"]
    assert list(dict.fromkeys(phases)) == ["Leasing", "Writing", "Acting", "Verifying", "Releasing"], lines
    assert visible[-1]["MESSAGE"] == "reported is the current config"
    assert {entry["NODEAGENT_DESIRED"] for entry in visible if "NODEAGENT_DESIRED" in entry} == {"reported"}
    steps = [entry["NODEAGENT_STEP"] for entry in visible if "NODEAGENT_STEP" in entry]
    restarts = ["coreos-update-ca-trust.service", "app.service", "crio.service"]
    assert sorted(set(steps)) == sorted(["daemon-reload", *(f"restart {unit}" for unit in restarts)]), lines
    done = [entry for entry in visible if entry.get("NODEAGENT_STEP") == "restart crio.service"][-1]
    assert float(done["NODEAGENT_SECONDS"]) >= 0
    # "Who did that to crio?" is answered by the journal of the unit itself, too: the job is systemd's.
    assert host.journal(match={"UNIT": "crio.service", "JOB_TYPE": "restart", "JOB_RESULT": "done"})

    explained = host.run(["journalctl", "--catalog", "--no-pager", f"NODEAGENT_UPDATE_ID={newest['update_id']}"]).stdout
    assert "Subject: Update to reported is done" in explained
    assert "Defined-By: nodeagent" in explained
    ids = {entry["MESSAGE_ID"] for entry in host.journal(agent.UNIT) if "NODEAGENT_PHASE" in entry}
    for ident in ids:
        assert host.run(["journalctl", "--dump-catalog", ident]).stdout.startswith(f"-- {ident}"), ident


@pytest.mark.long
def test_no_secret_is_logged_or_shown(make_node: HostMaker) -> None:
    flaky = "/etc/flaky/mode"
    policy = agent.policy(files={"/etc/app": ["None"], flaky: ["Restart flaky.service"]})
    host = make_node(
        files={agent.POLICY: policy},
        settings={
            "log": {"level": "debug"},
            "reboot": {"allow": False},
            "on_failure": "revert",
            "on_drift": "refuse",
        },
    )
    said = [agent.apply_command(host, config("secret"), "--wait").stdout]
    wait_done(host, "secret")
    assert host.read_text(PULL_SECRET) == pull_secret()
    assert PASSWORD_HASH in host.read_text("/etc/shadow")

    # Now everything that goes wrong with them: refused, reverted, drifted, not parsed.
    said += said_of(host, config("cut", **{PULL_SECRET: pull_secret() + "}"}))
    said += said_of(host, config("undecodable", **{PULL_SECRET: pull_secret(CREDENTIALS)}))
    said += said_of(host, config("anchor", **{ANCHOR: PEM}))
    said += said_of(host, config("whole").replace('"spec"', f'"spec": {PEM!r}, "spec"'))
    said += said_of(host, f"kind: MachineConfig\npassword: {CREDENTIALS}\n\t{AUTH}: [{PASSWORD_HASH}")
    said += said_of(host, config("reverted", salt="#", **{flaky: "fail"}), "--wait")
    host.write("/etc/app/key.pem", PEM * 2, mode=0o600)
    host.write(PULL_SECRET, pull_secret(AUTH) * 2, mode=0o600)
    host.run(["usermod", "--password", "!", "core"])
    said += said_of(host, config("drifted", salt="##"))
    for command in (["verify"], ["status"], ["history"], ["explain", PULL_SECRET], ["settings", "show"]):
        for form in ([], ["--json"]):
            done = host.run(["nodeagent", *command, *form], check=False)
            said += [done.stdout, done.stderr]
    said.append(host.run(["busctl", "introspect", agent.NAME, agent.PATH]).stdout)
    said.append(host.run(["systemctl", "status", "--full", "--lines=100", agent.UNIT], check=False).stdout)
    said.append(json.dumps(agent.status(host)))
    everything = "\n".join(said)
    assert "reverted" in everything
    assert "quay.example.com" in everything, "the registry is named, the credentials are not"
    assert [secret for secret in secrets() if secret in everything] == []
    assert agent.occurrences(host, secrets()) == []
    assert agent.occurrences(host, ["NODEAGENT_STEP=write /etc/app/key.pem"]) != [], "debug entries were looked at, too"


def said_of(host: Host, text: str, *options: str) -> list[str]:
    done = agent.apply_command(host, text, *options, check=False)
    assert done.returncode != 0, done.stdout
    return [done.stdout, done.stderr]
