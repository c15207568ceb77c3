# SPDX-License-Identifier: Apache-2.0
"""Files and ssh keys: the least disruption that is safe, by the jobs that were planned and no others."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container import events
from integration.hosts.container.configs import (
    ANCHOR,
    BLOCKED,
    CERTIFICATE,
    LOOKASIDE,
    MIRRORED,
    POLICY_JSON,
    REGISTRIES,
    SIGNED,
    SSH_KEY,
)
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import FileSpec, machine_config, outcomes, unit_events, wait_done
from integration.hosts.snapshot import difference

SIGSTORE = "/etc/containers/registries.d/ring.yaml"


def stat(host: Host, path: str) -> str:
    return host.run(["stat", "--format=%a %U:%G", path]).stdout.strip()


def test_a_change_of_mirrors_is_one_reload_job(node: Host) -> None:
    shipped, signatures = node.read_text(REGISTRIES), node.read(POLICY_JSON)
    agent.apply(node, machine_config("as-shipped", files={REGISTRIES: shipped}))
    wait_done(node, "as-shipped")
    assert unit_events(node, "crio.service") == ["crio.service start"], "what matches already is no change"

    agent.apply(node, machine_config("mirrored", files={REGISTRIES: FileSpec(MIRRORED, 0o640)}))
    wait_done(node, "mirrored")
    assert node.read_text(REGISTRIES) == MIRRORED
    assert stat(node, REGISTRIES) == "640 root:root"
    last = node.events("crio.service")[-1]
    assert unit_events(node, "crio.service") == ["crio.service start", "crio.service reload"]
    assert last.digest == events.digest(MIRRORED.encode(), signatures), "the content was there before the reload"
    jobs = node.journal(match={"UNIT": "crio.service", "JOB_TYPE": "reload"})
    assert [job["JOB_RESULT"] for job in jobs if "JOB_RESULT" in job] == ["done"]
    assert node.reboots == 0

    newest = agent.history(node)[0]
    assert (newest["outcome"], newest["disruption"], newest["reboots"]) == ("done", "reload", 0)
    assert newest["reboot_avoided"] is False, "the built-in policy asks for no reboot"
    assert agent.status(node)["lease"] is None


@pytest.mark.long
def test_an_unsafe_change_of_registries_is_planned_with_a_drain(node: Host) -> None:
    old, new = (machine_config(name, files={REGISTRIES: text}) for name, text in (("a", MIRRORED), ("b", BLOCKED)))
    node.write("/tmp/a.json", old)
    node.write("/tmp/b.json", new)
    plan = json.loads(node.run(["nodeagent", "plan", "--from", "/tmp/a.json", "--to", "/tmp/b.json", "--json"]).stdout)
    assert [action["type"] for action in plan["actions"]] == ["Drain", "Reload"]
    agent.apply(node, old)
    wait_done(node, "a")
    agent.apply(node, new)
    wait_done(node, "b")
    # Without a cluster there are no pods to drain. The other actions run, and no reboot replaces them.
    assert unit_events(node, "crio.service") == ["crio.service start", *["crio.service reload"] * 2]
    assert (agent.history(node)[0]["disruption"], node.reboots) == ("drain", 0)


@pytest.mark.long
def test_several_files_that_ask_for_a_unit_get_it_once(node: Host) -> None:
    base = {REGISTRIES: node.read_text(REGISTRIES), POLICY_JSON: node.read_text(POLICY_JSON)}
    agent.apply(node, machine_config("base", files=base))
    wait_done(node, "base")
    before = len(node.events())
    reloads = {REGISTRIES: MIRRORED, POLICY_JSON: SIGNED, SIGSTORE: LOOKASIDE}
    agent.apply(node, machine_config("reloads", files=reloads))
    wait_done(node, "reloads")
    assert unit_events(node, since=before) == ["crio.service reload"]

    before = len(node.events())
    restarts = {REGISTRIES: base[REGISTRIES], POLICY_JSON: base[POLICY_JSON], ANCHOR: CERTIFICATE}
    agent.apply(node, machine_config("restarts", files=restarts))
    wait_done(node, "restarts")
    # The trust store first, because CRI-O reads it when it starts; and no reload before a restart.
    trust = "coreos-update-ca-trust.service"
    assert unit_events(node, since=before) == [f"{trust} start", "crio.service stop", "crio.service start"]
    assert node.events(trust)[-1].digest == events.digest(CERTIFICATE.encode())
    assert node.reboots == 0


@pytest.mark.finding(
    "users: the last way in", "No config takes away the last way to log in as core, from whatever source."
)
def test_an_ssh_key_disrupts_nothing(node: Host) -> None:
    before = node.events()
    agent.apply(node, machine_config("keys", keys=[SSH_KEY]))
    wait_done(node, "keys")
    keys = "/home/core/.ssh/authorized_keys.d/ignition"
    assert node.read_text(keys) == f"{SSH_KEY}\n"
    assert stat(node, keys) == "600 core:core"
    assert [stat(node, folder) for folder in ("/home/core/.ssh", "/home/core/.ssh/authorized_keys.d")] == [
        "700 core:core",
        "700 core:core",
    ]
    assert (node.events(), node.reboots) == (before, 0)
    assert agent.history(node)[0]["disruption"] == "none"

    refused = agent.apply_command(node, machine_config("no-keys"), check=False)
    assert (refused.returncode, "Lockout" in refused.stderr) == (3, True), refused
    agent.apply_command(node, machine_config("no-keys"), "--allow-lockout")
    wait_done(node, "no-keys")
    assert not node.exists(keys)
    assert node.events() == before


def test_what_leaves_the_config_is_as_it_was_before(make_node: HostMaker) -> None:
    policy = agent.policy(files={"/etc/app": ["None"], "/etc/new": ["None"]})
    host = make_node(files={agent.POLICY: policy})
    host.write("/etc/app/shipped.conf", "of the OS\n", mode=0o600, owner="core")
    host.run(["ln", "-s", "shipped.conf", "/etc/app/link"])
    before = agent.managed(host)
    files: dict[str, str | bytes | FileSpec] = {
        "/etc/app/shipped.conf": FileSpec("ours\n", 0o755),
        "/etc/app/link": FileSpec("a file where a link was\n"),
        "/etc/new/very/deep/file": FileSpec(b"\0\xff", 0o604, user="core", group=4),
        "/etc/new/beside": "",
    }
    agent.apply(host, machine_config("with", files=files))
    wait_done(host, "with")
    assert stat(host, "/etc/app/shipped.conf") == "755 root:root"
    assert stat(host, "/etc/new/very/deep/file") == "604 core:adm"
    assert host.read("/etc/new/very/deep/file") == b"\0\xff"
    assert stat(host, "/etc/new/very/deep") == "755 root:root"
    assert host.read_text("/etc/app/link") == "a file where a link was\n"

    host.write("/etc/new/very/theirs", "of another program")
    agent.apply(host, machine_config("without"))
    wait_done(host, "without")
    assert host.read_text("/etc/new/very/theirs") == "of another program", "a directory that is used by others stays"
    assert not host.exists("/etc/new/very/deep")
    host.run(["rm", "--recursive", "/etc/new"])
    assert difference(before, agent.managed(host)) == []
    assert outcomes(host) == [("with", "done"), ("without", "done")]


def test_a_config_that_is_put_in_place_by_hand_is_seen(node: Host) -> None:
    agent.write_desired(node, machine_config("first", keys=[SSH_KEY]))
    wait_done(node, "first")
    agent.write_desired(node, machine_config("second", keys=[SSH_KEY, SSH_KEY.replace("GKBG", "GKBH")]))
    wait_done(node, "second")
    assert outcomes(node) == [("first", "done"), ("second", "done")]
