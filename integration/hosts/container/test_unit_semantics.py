# SPDX-License-Identifier: Apache-2.0
"""Units on a real systemd that a restart does not leave active, and what the agent makes of them."""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.nodeagent_client import UnitSpec, machine_config

MISSING = "/etc/site/enabled"
CONDITIONAL = f"""\
[Unit]
ConditionPathExists={MISSING}
[Service]
ExecStart=sleep infinity
[Install]
WantedBy=multi-user.target
"""
UNWANTED = CONDITIONAL.partition("[Install]")[0]
POLICY = agent.policy(
    files={
        "/etc/site/host": ["Restart host.service"],
        "/etc/site/bare": ["Restart bare.service"],
        MISSING: ["Restart host.service"],
    },
    units={"own.service": ["DaemonReload", "Restart own.service"]},
)
OWN = {"own.service": UnitSpec(CONDITIONAL, enabled=True)}


@pytest.mark.long
@pytest.mark.finding(
    "units: start conditions", "A job that is done with an unmet start condition is skipped: no reboot, no revert."
)
def test_a_start_condition_that_is_not_met(make_node: HostMaker) -> None:
    """The rule applies to a unit of the host, to one without references, and to one that the config brings."""
    unit_dir = "/etc/systemd/system"
    host = make_node(
        files={
            agent.POLICY: POLICY,
            f"{unit_dir}/host.service": CONDITIONAL,
            f"{unit_dir}/bare.service": UNWANTED,
        }
    )
    host.run(["systemctl", "enable", "host.service"])
    files = {"/etc/site/host": "1", "/etc/site/bare": "1"}
    agent.apply(host, machine_config("site", files=files, units=OWN))
    agent.wait_done(host, "site")
    (entry,) = agent.history(host)
    assert (entry["outcome"], entry["reboots"], host.reboots) == ("done", 0, 0)
    for unit in ("host.service", "bare.service", "own.service"):
        assert f"restart {unit} skipped, start condition ConditionPathExists={MISSING} of {unit}" in entry["message"]
    skipped = [
        e for e in agent.update_journal(host, entry["update_id"]) if e.get("NODEAGENT_REASON") == "ConditionNotMet"
    ]
    assert sorted(e["NODEAGENT_STEP"] for e in skipped) == [f"restart {u}.service" for u in ("bare", "host", "own")]

    agent.apply(host, machine_config("met", files={**files, MISSING: ""}, units=OWN))
    agent.wait_done(host, "met")
    assert host.is_active("host.service")
    agent.apply(host, machine_config("unmet", files=files, units=OWN))
    agent.wait_done(host, "unmet")
    assert not host.is_active("host.service"), "stopped and not started again, as by systemctl restart"
    assert agent.outcomes(host)[-1] == ("unmet", "done")
    assert host.reboots == 0


@pytest.mark.finding(
    "users: first trial of configs",
    "A unit that leaves the config while it runs is stopped, instances of a template included.",
)
def test_a_unit_that_leaves_the_config_is_stopped(make_node: HostMaker) -> None:
    """systemd itself would keep it running, "not-found", until the next boot. So would instances of a template."""
    template = "/etc/systemd/system/gone@.service"
    policy = agent.policy(files={template: ["None"]}, units={"gone.service": ["DaemonReload"]})
    host = make_node(files={agent.POLICY: policy})
    body = "[Service]\nExecStart=sleep infinity\n"
    agent.apply(host, machine_config("with", files={template: body}, units={"gone.service": UnitSpec(body)}))
    agent.wait_done(host, "with")
    host.run(["systemctl", "start", "gone.service", "gone@1.service", "gone@2.service"])
    agent.apply(host, machine_config("without"))
    agent.wait_done(host, "without")
    for unit in ("gone.service", "gone@1.service", "gone@2.service"):
        state = host.unit(unit, "LoadState", "ActiveState")
        assert (state["LoadState"], state["ActiveState"]) == ("not-found", "inactive"), unit
    assert agent.outcomes(host)[-1] == ("without", "done")
    assert host.reboots == 0


@pytest.mark.long
@pytest.mark.finding(
    "users: first trial of configs",
    "A drop-in for a unit that does not exist is a warning with the closest name, strictly an error.",
)
@pytest.mark.mistake(
    "drop-in of `kublet.service`",
    "accepted: one reboot for it, and one to take it out",
    "a warning, an error with `--strict`, no reboot: `there is no unit kublet.service on this host or in the config; "
    "did you mean kubelet.service?`",
)
def test_a_drop_in_for_a_unit_that_does_not_exist(make_node: HostMaker) -> None:
    host = make_node()
    before = agent.managed(host)
    dropins = {"10-x.conf": "[Service]\nEnvironment=A=1\n"}
    config = machine_config("typo", units={"kublet.service": UnitSpec(dropins=dropins)})
    refused = agent.apply_command(host, config, "--strict", check=False)
    warning = "there is no unit kublet.service on this host or in the config; did you mean kubelet.service?"
    assert refused.returncode == 2
    assert warning in refused.stderr
    assert agent.managed(host) == before
    agent.apply(host, config)
    agent.wait_done(host, "typo")
    assert warning in agent.history(host)[0]["message"]
    assert host.exists("/etc/systemd/system/kublet.service.d/10-x.conf")
    host.wait_for(lambda: "kublet.service" in str(agent.status(host)["problems"]) or None, "the warning in the status")
    assert host.reboots == 0
