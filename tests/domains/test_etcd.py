# SPDX-License-Identifier: Apache-2.0
"""etcd as a unit: what a change of its options does, and what must not change."""

from __future__ import annotations

import pytest

from nodeagent import domains
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.core.config.units import UnitEntry
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.domain import MemberHealth, UnitFailure
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.policy import Entry, Policy, merge
from nodeagent.core.plan.sides import HostView
from nodeagent.domains import default_policy

ENV = "/etc/default/etcd"
YAML = "/etc/etcd/etcd.conf.yaml"


def config(**files: bytes) -> MachineConfig:
    paths = {"env": ENV, "yaml": YAML}
    return MachineConfig("c", files={paths[name]: FileEntry(paths[name], content) for name, content in files.items()})


def words(made: Plan) -> list[str]:
    return [f"{action.type} {action.unit}".strip() for action in made.actions]


def test_an_option_restarts_it_and_a_comment_does_not() -> None:
    made = make_plan(config(env=b"ETCD_NAME=a\n"), config(env=b'ETCD_NAME="b"\n'), default_policy())
    assert words(made) == ["Restart etcd.service"]
    assert made.stops_etcd
    assert [(key.key, key.before, key.after) for key in made.changes[0].keys] == [
        ("name", "(not shown)", "(not shown)")
    ]
    made = make_plan(config(env=b"ETCD_NAME=a\n"), config(env=b"# b\nETCD_NAME='a'\n"), default_policy())
    assert words(made) == ["None"]
    assert not made.stops_etcd
    units = [
        MachineConfig("c", units={"etcd.service": UnitEntry("etcd.service", contents=text)}) for text in ("a", "b")
    ]
    assert words(make_plan(*units, default_policy())) == ["DaemonReload", "Restart etcd.service"]


def test_an_entry_of_a_user_that_restarts_it_needs_the_quorum_too() -> None:
    entry = Entry("/etc/x", default_policy().units["etcd.service"].actions)
    made = make_plan(
        MachineConfig("c"),
        MachineConfig("c", files={"/etc/x": FileEntry("/etc/x", b"")}),
        merge(default_policy(), Policy(files={"/etc/x": entry})),
    )
    assert made.stops_etcd
    rebooting = make_plan(MachineConfig("c"), config(), default_policy())
    assert not rebooting.stops_etcd


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b"data-dir: /a", b"data-dir: /b", "changes the data directory"),
        (b"data-dir: /a", b"name: x", "changes the data directory"),
        (b"initial-cluster-state: existing", b"initial-cluster-state: new", "must stay existing"),
        (b"initial-cluster-state: existing", b"{}", "must stay existing"),
        (b"name: a", b"force-new-cluster: true", "force-new-cluster"),
        (b"name: a", b"- a", "must be a mapping"),
        (b"name: a", b"{", ""),
        (b"data-dir: /a", b"data-dir: /a\nname: b", None),
        (b"name: a", b"initial-cluster-state: new", None),
    ],
)
def test_what_must_not_change(old: bytes, new: bytes, problem: str | None) -> None:
    found = domains.validate(config(yaml=old), config(yaml=new))
    assert {each.path for each in found} == (set() if problem is None else {YAML})
    assert problem is None or any(problem in each.message for each in found)


def test_the_proof_and_what_a_boot_cannot_mend() -> None:
    assert domains.health_of("etcd.service", HostView()) == (MemberHealth("etcd.service"),)
    assert not domains.curable(UnitFailure("etcd.service", "exit-code"))
