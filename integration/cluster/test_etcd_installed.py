# SPDX-License-Identifier: Apache-2.0
"""A member of etcd that the installed daemon manages: systemd's unit with `prepare`, D-Bus, the store, and a reboot."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from integration.cluster.programs import Binaries
from integration.hosts.container.conftest import (
    HostMaker,
    agent_image,
    image,
    make_host,
    make_node,
    package,
    pytest_runtest_makereport,
    say,
)
from integration.hosts.container.container_host import Host

__all__ = ["agent_image", "image", "make_host", "make_node", "package", "pytest_runtest_makereport", "say"]

PROGRAMS = "/srv/etcd-programs"
OTHERS = {"a": "127.0.0.11", "b": "127.0.0.12"}
OURS = "127.0.0.13"
MEMBER = "/var/lib/etcd/member"
OTHER = """[Service]
Type=notify
ExecStart={programs}/etcd --name={name} --data-dir=/var/lib/etcd-{name} --initial-cluster={cluster} \\
  --listen-client-urls=http://{address}:2379 --advertise-client-urls=http://{address}:2379 \\
  --listen-peer-urls=http://{address}:2380 --initial-advertise-peer-urls=http://{address}:2380 --log-level=warn
[Install]
WantedBy=multi-user.target
"""
UNIT = f"""[Service]
Type=notify
User=nobody
StateDirectory=etcd
StateDirectoryMode=0700
ExecStartPre=+/usr/bin/nodeagent etcd prepare
ExecStart={PROGRAMS}/etcd --config-file=/run/nodeagent/etcd/member.json
Restart=on-failure
RestartSec=2
[Install]
WantedBy=multi-user.target
"""
CONFIG = f"""name: c
data-dir: /var/lib/etcd
listen-client-urls: http://{OURS}:2379
advertise-client-urls: http://{OURS}:2379
listen-peer-urls: http://{OURS}:2380
initial-advertise-peer-urls: http://{OURS}:2380
log-level: warn
"""
SETTINGS = f"""config: /etc/etcd/etcd.conf.yaml
endpoints: [{", ".join(f"http://{address}:2379" for address in OTHERS.values())}]
program: {PROGRAMS}/etcd
"""
LATE = 180.0


def files() -> Mapping[str, str]:
    cluster = ",".join(f"{name}=http://{address}:2380" for name, address in OTHERS.items())
    units = {
        f"/etc/systemd/system/other-{name}.service": OTHER.format(
            programs=PROGRAMS, name=name, address=address, cluster=cluster
        )
        for name, address in OTHERS.items()
    }
    own = {"/etc/systemd/system/etcd.service": UNIT, "/etc/etcd/etcd.conf.yaml": CONFIG}
    return {**units, **own, "/etc/nodeagent/etcd-member.yaml": SETTINGS}


def roles(host: Host) -> dict[str, str]:
    """The members by name, as `nodeagent etcd status` of another member sees them."""
    shown = host.run(["nodeagent", "etcd", "status", "--json", "--endpoint", f"http://{OTHERS['a']}:2379"], check=False)
    found: dict[str, Any] = json.loads(shown.stdout)
    return {each["name"]: "learner" if each["learner"] else each["trouble"] for each in found["members"]}


def change(host: Host, *words: str) -> dict[str, Any]:
    """Right after a change etcd refuses the next one for some seconds."""
    deadline = time.monotonic() + LATE
    while True:
        done = host.run(["nodeagent", "etcd", *words, "--json"], check=False, timeout=LATE)
        if done.returncode == 0:
            answer: dict[str, Any] = json.loads(done.stdout)
            return answer
        assert time.monotonic() < deadline, done.stderr
        time.sleep(1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_member_of_the_installed_daemon(binaries: Binaries, make_node: HostMaker) -> None:
    host: Host = make_node(files=files(), read_only={PROGRAMS: binaries.etcd.parent})
    host.run(["systemctl", "enable", "etcd.service", *(f"other-{name}.service" for name in OTHERS)])
    host.run(["systemctl", "start", *(f"other-{name}.service" for name in OTHERS)])
    refused = host.run(["nodeagent", "etcd", "prepare"], check=False)
    assert (refused.returncode, "EtcdNotMember" in refused.stderr) == (4, True)

    assert change(host, "join")["ended"] == "done"
    assert roles(host) == {"a": "", "b": "", "c": ""}
    assert host.unit("etcd.service", "ActiveState")["ActiveState"] == "active"

    with host.rebooting():
        host.run(["systemctl", "reboot"])
    host.run(["systemctl", "start", "etcd.service"], timeout=LATE)
    assert roles(host) == {"a": "", "b": "", "c": ""}

    # The disk is lost. systemd does not start etcd until the member is replaced.
    host.run(["systemctl", "stop", "etcd.service"])
    host.run(["rm", "-r", MEMBER])
    assert host.run(["systemctl", "start", "etcd.service"], check=False, timeout=LATE).returncode != 0
    assert "EtcdDataLost" in host.run(["journalctl", "-b", "-u", "etcd.service", "-o", "cat"]).stdout
    host.run(["systemctl", "stop", "etcd.service"])
    assert change(host, "replace")["ended"] == "done"
    assert roles(host) == {"a": "", "b": "", "c": ""}

    assert change(host, "leave")["ended"] == "done"
    assert roles(host) == {"a": "", "b": ""}
    assert host.run(["ls", "/var/lib/etcd"]).stdout.startswith("member-archive-")
    assert json.loads(host.run(["nodeagent", "lease", "show", "--json"]).stdout)["lease"] is None
