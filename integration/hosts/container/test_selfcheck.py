# SPDX-License-Identifier: Apache-2.0
"""`nodeagent selfcheck` on a real host: an installation passes as root and as a user, and each breakage is found."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host

UNIT_FILE = f"/usr/lib/systemd/system/{agent.UNIT}"
OWN_UNIT = f"/etc/systemd/system/{agent.UNIT}"
PRESET = "/etc/systemd/system-preset/00-site.preset"
SETTINGS = "/run/nodeagent/config.d/90-selfcheck.yaml"
BUS_POLICY = "/usr/share/dbus-1/system.d/org.nodeagent.Agent1.conf"
POLKIT = "/usr/share/polkit-1/actions/org.nodeagent.agent1.policy"
LIBRARY = "/usr/lib/nodeagent/lib/libpython3.14.so.1.0"
KUBECONFIG = """\
current-context: c
clusters: [{name: k, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: k, user: u}}]
"""


def results(host: Host, user: str = "root") -> dict[str, str]:
    """Check the exit status against the results, and return the result of each check."""
    done = host.run(["nodeagent", "selfcheck", "--json"], user=user, check=False)
    answer = json.loads(done.stdout)
    found = {check["id"]: check["result"] for check in answer["checks"]}
    bad = [check for check in answer["checks"] if check["result"] == "failed"]
    assert (done.returncode, answer["ok"]) == ((1, False) if bad else (0, True)), done.stderr
    assert all(check["remedy"] for check in bad), bad
    return found


def failures(host: Host) -> set[str]:
    return {name for name, result in results(host).items() if result == "failed"}


@pytest.mark.long
@pytest.mark.slow
def test_an_installation_passes_and_each_breakage_is_found(make_node: HostMaker) -> None:
    host = make_node()
    found = results(host)
    skipped = {name for name, result in found.items() if result == "skipped"}
    assert set(found.values()) == {"ok", "warning", "skipped"}, found
    # The package of the ring has the interpreter of tests.
    assert [name for name, result in found.items() if result == "warning"] == ["versions.interpreter"]
    not_here = {
        "os.fields",
        "boot.count",
        "selinux.labels",
        "selinux.domain",
        "reach.api-server",
        "reach.lease",
        "reach.fleetlock",
        "reach.graph",
        "reach.registry",
    }
    assert skipped == not_here
    # A user sees the same, but for the content of the state directory.
    of_user = results(host, "core")
    assert {name for name in found if found[name] != of_user[name]} == {"state.store"}
    text = host.run(["nodeagent", "selfcheck"]).stdout
    assert "nodeagent is installed correctly" in text

    # Files, in one run: no check hides another.
    host.run(["mv", BUS_POLICY, "/root/bus"])
    host.run(["mv", POLKIT, "/root/polkit"])
    host.run(["mv", "/var/lib/systemd/catalog/database", "/root/catalog"])
    host.run(["chmod", "0666", "/usr/lib/nodeagent/config.d/10-defaults.yaml"])
    host.run(["mv", "/run/motd.d", "/root/motd.d"])
    host.run(["chmod", "0755", "/var/lib/nodeagent"])
    host.run(["chmod", "0644", agent.STORE])
    host.run(["sed", "-i", 's/"name": "openssl"/"name": "other"/', "/usr/lib/nodeagent/sbom.cdx.json"])
    # As an upgrade without a restart leaves it: the daemon has the old file open.
    host.run(["sh", "-c", f"cp --preserve {LIBRARY} /root/library && mv /root/library {LIBRARY}"])
    host.write("/root/kubeconfig", KUBECONFIG)
    host.write(SETTINGS, "cluster: {kubeconfig: /root/kubeconfig}\n")
    host.write(PRESET, f"disable {agent.UNIT}\n")
    host.run(["systemctl", "daemon-reload"])
    # Without its policy, the bus forwards no call to the daemon.
    host.run(["systemctl", "reload", "dbus"])
    assert failures(host) == {
        "dbus.policy",
        "dbus.name",
        "polkit.actions",
        "polkit.decisions",
        "journal.catalog",
        "files.package",
        "files.directories",
        "state.directory",
        "state.store",
        "versions.package",
        "unit.preset",
        "reach.api-server",
        "reach.lease",
    }
    host.write(SETTINGS, "actions: {timeuot: 3}\n")
    assert "settings" in failures(host)
    host.write(SETTINGS, "slots: {fleetlock: 'http://127.0.0.1:1'}\n")
    host.run(["mv", "/root/bus", BUS_POLICY])
    host.run(["systemctl", "reload", "dbus"])
    assert {"reach.fleetlock", "versions.daemon"} <= failures(host)
    host.run(["mv", "/root/polkit", POLKIT])
    host.run(["mv", "/root/motd.d", "/run/motd.d"])
    host.run(["rm", SETTINGS, PRESET])
    # The ways out that the command names.
    host.run(["journalctl", "--update-catalog"])
    host.run(["chmod", "0644", "/usr/lib/nodeagent/config.d/10-defaults.yaml"])
    host.run(["chmod", "0700", "/var/lib/nodeagent"])
    host.run(["chmod", "0600", agent.STORE])
    host.run(["sed", "-i", 's/"name": "other"/"name": "openssl"/', "/usr/lib/nodeagent/sbom.cdx.json"])
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(host)
    host.wait_for(lambda: not failures(host), "all is repaired")

    # The unit: shadowed, then disabled and stopped, then masked.
    host.run(["cp", UNIT_FILE, OWN_UNIT])
    host.run(["systemctl", "daemon-reload"])
    assert failures(host) == {"unit.file"}
    host.run(["rm", OWN_UNIT])
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "disable", "--now", agent.UNIT])
    assert failures(host) == {"unit.enabled", "unit.active"}
    assert results(host)["versions.daemon"] == "skipped"
    host.run(["systemctl", "mask", agent.UNIT])
    assert {"unit.file", "unit.active"} <= failures(host)
