"""Changes of CRI-O's configuration by key, on a stand-in that logs a failed reload and nothing else, as CRI-O does."""

from __future__ import annotations

import json

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import machine_config, outcomes, unit_events, wait_done

DROPIN = "/etc/crio/crio.conf.d/01-ctrcfg-test"


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


def test_a_reload_that_is_only_logged_as_failed_is_reverted(make_node: HostMaker) -> None:
    host = make_node()
    agent.apply(host, config("good", 'seccomp_profile = "/etc/passwd"'))
    wait_done(host, "good")
    agent.write_desired(host, config("bad", 'seccomp_profile = "/missing.json"'))
    entry = agent.wait_outcome(host, "bad", 60)
    assert (entry["outcome"], entry["reason"]) == ("reverted", "ReloadRejected")
    assert "/missing.json" in entry["message"]
    assert "/etc/passwd" in host.read_text(DROPIN)
    assert host.reboots == 0


def test_a_file_that_is_no_toml_is_refused_and_leftovers_are_named(node: Host) -> None:
    refused = agent.apply_command(node, config("bad", "pids_limit = ["), "--json", check=False)
    assert (refused.returncode, json.loads(refused.stderr)["reason"]) == (2, "InvalidContent")
    node.write(f"{DROPIN}.bak", "[crio.runtime]\n")
    agent.apply(node, config("good", "pids_limit = 2048"))
    wait_done(node, "good")
    assert f"{DROPIN}.bak" in agent.history(node)[0]["message"]
    assert outcomes(node) == [("good", "done")]
