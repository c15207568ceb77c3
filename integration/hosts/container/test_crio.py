# SPDX-License-Identifier: Apache-2.0
"""Changes of CRI-O's configuration by key, on a stand-in that logs a failed reload and nothing else, as CRI-O does."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config, outcomes, unit_events, wait_done

KUBELET_CONF = "/etc/kubernetes/kubelet.conf"
KUBELET = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
DROPIN = "/etc/crio/crio.conf.d/01-ctrcfg-test"
SEARCH = "/etc/containers/registries.conf.d/01-image-searchRegistries.conf"
PLACES = "/etc/containers/registries.d"
SIGSTORE = "docker:\n  registry.example:\n    use-sigstore-attachments: true\n"


def config(name: str, text: str) -> str:
    return machine_config(name, files={DROPIN: f"[crio.runtime]\n{text}\n"})


def test_keys_are_reloaded_or_restarted(node: Host) -> None:
    agent.apply(node, config("first", 'log_level = "info"'))
    wait_done(node, "first")
    before = len(node.events())
    agent.apply(node, config("reloaded", 'log_level = "debug"'))
    wait_done(node, "reloaded")
    assert unit_events(node, since=before) == ["crio.service reload"]
    agent.apply(node, config("comment", '# more\nlog_level = "debug"'))
    wait_done(node, "comment")
    assert unit_events(node, since=before) == ["crio.service reload"], "no key changed"
    agent.apply(node, config("restarted", "pids_limit = 4096"))
    wait_done(node, "restarted")
    assert unit_events(node, since=before) == ["crio.service reload", "crio.service stop", "crio.service start"]
    assert node.reboots == 0


@pytest.mark.long
def test_a_reload_that_is_only_logged_as_failed_is_reverted(make_node: HostMaker) -> None:
    host = make_node()
    agent.apply(host, config("good", 'seccomp_profile = "/etc/passwd"'))
    wait_done(host, "good")
    agent.write_desired(host, config("bad", 'seccomp_profile = "/missing.json"'))
    entry = agent.wait_outcome(host, "bad")
    assert (entry["outcome"], entry["reason"]) == ("reverted", "ReloadRejected")
    assert "/missing.json" in entry["message"]
    assert "/etc/passwd" in host.read_text(DROPIN)
    assert host.reboots == 0


# It logs nothing at a reload, and takes no configuration over while /run/deaf exists.
QUIET_CRIO = f"""\
[Service]
ExecReload=
ExecReload=/bin/sh -c 'test -e /run/deaf || cp {DROPIN} /run/crio-running'
"""
STATUS = """\
#!/bin/sh
[ "$1" = status ] || exit 0
cat /run/crio-running
"""


@pytest.mark.long
def test_the_running_configuration_proves_a_reload_that_is_not_logged(make_node: HostMaker) -> None:
    host = make_node()
    host.write("/usr/local/bin/crio", STATUS)
    host.run(["chmod", "755", "/usr/local/bin/crio"])
    host.write("/etc/systemd/system/crio.service.d/quiet.conf", QUIET_CRIO)
    host.run(["systemctl", "daemon-reload"])
    agent.apply(host, config("first", 'log_level = "fatal"'))
    wait_done(host, "first")
    agent.apply(host, config("heard", 'log_level = "panic"'))
    wait_done(host, "heard")
    assert "did not log" not in agent.history(host)[0]["message"]
    host.write("/run/deaf", "")
    agent.write_desired(host, config("deaf", 'log_level = "fatal"'))
    entry = agent.wait_outcome(host, "deaf")
    assert (entry["outcome"], entry["reason"]) == ("reverted", "ReloadRejected")
    assert "crio.runtime.log_level" in entry["message"]
    assert host.reboots == 0


@pytest.mark.long
def test_a_kubelet_that_requires_crio_restarts_once(make_node: HostMaker) -> None:
    host = make_node()
    host.write("/etc/systemd/system/kubelet.service.d/requires.conf", "[Unit]\nRequires=crio.service\n")
    host.run(["systemctl", "daemon-reload"])

    def both(name: str, pids: int, pods: int) -> str:
        kubelet = json.dumps({**KUBELET, "maxPods": pods})
        return machine_config(name, files={DROPIN: f"[crio.runtime]\npids_limit = {pids}\n", KUBELET_CONF: kubelet})

    agent.apply(host, both("first", 1024, 200))
    wait_done(host, "first")
    once = ["crio.service start", "crio.service stop", "kubelet.service start", "kubelet.service stop"]
    for name, pids, pods in (("both", 2048, 250), ("runtime", 4096, 250)):
        before = len(host.events())
        host.write("/root/next.json", both(name, pids, pods))
        plan = json.loads(host.run(["nodeagent", "plan", "/root/next.json", "--json"]).stdout)
        noted = any(note.startswith("kubelet.service restarts as well") for note in plan["notes"])
        assert noted is (name == "runtime"), "of both it is an action of its own"
        agent.apply(host, both(name, pids, pods))
        wait_done(host, name)
        found = unit_events(host, since=before)
        assert sorted(found) == once
        assert found.index("crio.service start") < found.index("kubelet.service start")
    # Only the runtime is in the plan: a kubelet that does not come back with it is noticed.
    host.write("/etc/systemd/system/kubelet.service.d/ends.conf", "[Service]\nExecStartPre=/bin/false\n")
    host.run(["systemctl", "daemon-reload"])
    agent.settings(host, {"reboot": {"allow": False}})
    host.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(host)
    agent.write_desired(host, both("ends", 8192, 250))
    agent.wait_phase(host, "Degraded", timeout=120)
    assert "kubelet.service" in agent.history(host)[0]["message"]


@pytest.mark.long
def test_a_unit_that_starts_while_its_files_change_is_restarted(make_node: HostMaker) -> None:
    host = make_node()
    agent.apply(host, config("first", 'log_level = "info"'))
    wait_done(host, "first")
    host.write("/etc/systemd/system/crio.service.d/slow.conf", "[Service]\nExecStartPre=/bin/sleep 5\n")
    host.run(["systemctl", "daemon-reload"])
    before = len(host.events())
    host.run(["systemctl", "restart", "--no-block", "crio.service"])
    agent.apply(host, config("second", 'log_level = "debug"'))
    wait_done(host, "second")
    assert "crio.service reload" not in unit_events(host, since=before)
    written = float(host.run(["stat", "--format=%.Y", DROPIN]).stdout)
    started = host.run(
        ["systemctl", "show", "--property=ActiveEnterTimestamp", "--timestamp=us+utc", "--value", "crio"]
    )
    assert (
        datetime.strptime(started.stdout.strip(), "%a %Y-%m-%d %H:%M:%S.%f UTC").replace(tzinfo=UTC).timestamp()
        > written + 5
    )


@pytest.mark.long
def test_a_file_that_is_no_toml_is_refused_and_leftovers_are_named(node: Host) -> None:
    refused = agent.apply_command(node, config("bad", "pids_limit = ["), "--json", check=False)
    assert (refused.returncode, json.loads(refused.stderr)["reason"]) == (2, "InvalidContent")
    node.write(f"{DROPIN}.bak", "[crio.runtime]\n")
    agent.apply(node, config("good", "pids_limit = 2048"))
    wait_done(node, "good")
    assert f"{DROPIN}.bak" in agent.history(node)[0]["message"]
    assert outcomes(node) == [("good", "done")]


def test_a_drop_in_of_registries_is_reloaded_and_a_namespace_of_two_files_is_refused(node: Host) -> None:
    def search(name: str, *registries: str, **more: str) -> str:
        text = f"unqualified-search-registries = {json.dumps(registries)}\n"
        return machine_config(name, files={SEARCH: text, **more})

    agent.apply(node, search("first", "a.example"))
    wait_done(node, "first")
    before = len(node.events())
    agent.apply(node, search("more", "a.example", "b.example"))
    wait_done(node, "more")
    assert unit_events(node, since=before) == ["crio.service reload"]
    # A file of the host has the namespace already.
    node.write(f"{PLACES}/host.yaml", SIGSTORE)
    twice = search("twice", "a.example", "b.example", **{f"{PLACES}/ours.yaml": SIGSTORE})
    refused = agent.apply_command(node, twice, "--json", check=False)
    assert (refused.returncode, json.loads(refused.stderr)["reason"]) == (2, "InvalidInput")
    assert f"{PLACES}/host.yaml" in refused.stderr
    assert node.reboots == 0
