"""Units on a real systemd that a restart does not leave active, and what the agent makes of them."""

from __future__ import annotations

from integration.host import agent
from integration.host.agent import UnitSpec, machine_config
from integration.host.conftest import HostMaker

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


def test_a_start_condition_that_is_not_met(make_node: HostMaker) -> None:
    """Of a unit of the host, of one that nothing refers to, and of one that the config brings."""
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
