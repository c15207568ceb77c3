# SPDX-License-Identifier: Apache-2.0
"""The daemon without any feature, and with each of them alone."""

from __future__ import annotations

import re

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import FileSpec
from nodeagent import features

MODE = "/etc/flaky/mode"
DEFAULTS = "/usr/lib/nodeagent/config.d"
POLICY = agent.policy(files={"/etc/flaky": ["Restart flaky.service"], "/etc/quiet": ["None"]})
QUICK = {"actions": {"timeout": 8, "settle": 1}, "verify": {"timeout": 8}}


def word(name: str) -> str:
    return name.replace("_", "-")


def package_of(host: Host) -> str:
    """Return the folder of the features in the installed package."""
    return host.run(["find", "/usr/lib/nodeagent", "-path", "*/nodeagent/features", "-type", "d"]).stdout.strip()


def install(host: Host, *names: str) -> None:
    """Leave only these features in the list of the installed package, and delete the others."""
    package = package_of(host)
    text = host.read_text(f"{package}/__init__.py")
    listed = f"NAMES: Final = ({''.join(f'{name!r}, ' for name in names)})"
    host.write(f"{package}/__init__.py", re.sub(r"NAMES: Final = \(.*?\)", listed, text, count=1, flags=re.DOTALL))
    # The bytecode of the package is never compared with its source.
    host.run(["rm", "-r", f"{package}/__pycache__"])
    for name in features.NAMES:
        if name not in names:
            host.run(
                ["rm", "-rf", f"{package}/{name}", f"/usr/lib/nodeagent/config.d/10-{name.replace('_', '-')}.yaml"]
            )
    host.run(["systemctl", "restart", agent.UNIT])
    agent.wait_daemon(host)


@pytest.mark.long
def test_the_base_alone_updates_falls_back_and_reverts(make_node: HostMaker) -> None:
    host = make_node(settings=QUICK, files={agent.POLICY: POLICY})
    install(host)
    good = agent.machine_config("good", files={MODE: "ok", "/etc/quiet/a": FileSpec("1", mode=0o600)})
    agent.apply(host, good)
    agent.wait_done(host, "good")
    assert host.reboots == 0

    with host.rebooting():
        agent.apply(host, agent.machine_config("cured", files={MODE: "fail until-reboot", "/etc/quiet/a": "2"}))
    agent.wait_done(host, "cured")
    assert host.reboots == 1

    with host.rebooting():
        agent.apply(host, agent.machine_config("bad", files={MODE: "fail", "/etc/quiet/a": "3"}))
    assert agent.wait_outcome(host, "bad")["outcome"] == "reverted"
    assert (host.read_text("/etc/quiet/a"), agent.status(host)["current"]) == ("2", "cured")
    assert "bad" in host.run(["nodeagent", "history"]).stdout
    assert "bad was taken back" in host.run(["journalctl", "-u", agent.UNIT, "-o", "cat"]).stdout


@pytest.mark.long
def test_each_feature_works_alone(make_node: HostMaker) -> None:
    host = make_node(settings=QUICK, files={agent.POLICY: POLICY})
    package = package_of(host)
    host.run(["cp", "-a", package, "/root/features"])
    host.run(["cp", "-a", DEFAULTS, "/root/defaults"])
    for number, name in enumerate(features.NAMES):
        install(host, name)
        agent.apply(host, agent.machine_config(word(name), files={MODE: "ok", "/etc/quiet/a": str(number)}))
        agent.wait_done(host, word(name))
        assert agent.status(host)["problems"] == [], name
        host.run(["rm", "-rf", package, DEFAULTS])
        host.run(["cp", "-a", "/root/features", package])
        host.run(["cp", "-a", "/root/defaults", DEFAULTS])
