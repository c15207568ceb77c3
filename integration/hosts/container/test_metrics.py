# SPDX-License-Identifier: Apache-2.0
"""The metrics of a real daemon: there for an exporter that is not root, after a fallback reboot, gone at a stop."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families as parsed

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import FileSpec

PATH = "/run/nodeagent/metrics.prom"
QUICK = {"actions": {"timeout": 8, "settle": 0.5}, "verify": {"timeout": 8}}
POLICY = agent.policy(files={"/etc/flaky": ["Restart flaky.service"], "/etc/quiet": ["None"]})


def metrics(host: Host) -> dict[tuple[str, ...], float]:
    """Return the metrics by name and label values, read as an unprivileged user."""
    text = host.run(["cat", PATH], user="nobody").stdout
    return {(each.name, *each.labels.values()): each.value for family in parsed(text) for each in family.samples}


def wait_updates(host: Host, **outcomes: float) -> dict[tuple[str, ...], float]:
    """Wait until the file has so many updates with these outcomes. It is written up to a second after the event."""

    def known() -> dict[tuple[str, ...], float] | None:
        found = metrics(host)
        expected = {name.replace("_", "-"): count for name, count in outcomes.items()}
        return found if all(found["nodeagent_updates_total", name] == expected[name] for name in expected) else None

    return host.wait_for(known, f"metrics with {outcomes}", 180)


def test_metrics_of_a_real_daemon(make_node: HostMaker) -> None:
    host = make_node(settings=QUICK, files={agent.POLICY: POLICY})
    quiet = agent.machine_config("quiet", files={"/etc/quiet": FileSpec("1")})
    agent.apply(host, quiet)
    agent.wait_done(host, "quiet")
    found = wait_updates(host, done=1)
    assert found["nodeagent_reboots_avoided_total",] == 1
    assert found["nodeagent_config_info", "quiet", "quiet"] == 1
    assert found["nodeagent_phase", "Idle"] == 1
    assert found["nodeagent_update_duration_seconds_count",] == 1

    with host.rebooting():
        agent.apply(host, agent.machine_config("flaky", files={"/etc/flaky/mode": "fail until-reboot"}))
    agent.wait_done(host, "flaky")
    found = wait_updates(host, done=1, done_after_fallback=1)
    assert found["nodeagent_fallbacks_total",] == 1
    assert found["nodeagent_reboots_total",] == 1
    assert (
        found["nodeagent_last_update_end_timestamp_seconds",] > found["nodeagent_phase_start_timestamp_seconds",] - 60
    )

    host.run(["systemctl", "stop", agent.UNIT])
    assert "metrics" not in host.run(["ls", "-A", "/run/nodeagent"]).stdout, "nothing that would pass for the present"
