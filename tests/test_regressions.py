# SPDX-License-Identifier: Apache-2.0
"""Every finding of the outside reviews has a test with a marker, or a reason why it has none."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import removed

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
findings = importlib.import_module("findings")

FOUND = (
    "OS: GRUB passwords",
    "OS: drift of another OS",
    "OS: fields in the self-check",
    "OS: fields without a back end",
    "OS: images that cannot boot",
    "OS: locked deployments",
    "OS: soft reboots",
    "OS: space of image stores",
    "OS: system extensions",
    "OS: what a boot brings",
    "attack: answers of an API server",
    "attack: configs against the agent",
    "attack: expensive reads",
    "attack: lists without an end",
    "attack: outages without end",
    "attack: private keys on the disk",
    "attack: programs that check a config",
    "attack: reads beside others",
    "attack: stolen credentials of a node",
    "attack: the unit without rights",
    "cluster: a queue of thousands",
    "cluster: agents after an outage",
    "cluster: an API server that starts",
    "cluster: an authorizer that is not ready",
    "cluster: answers that say nothing",
    "cluster: connections at rest",
    "cluster: cost of a failed attempt",
    "cluster: cost of single requests",
    "cluster: dead slot holders",
    "cluster: exclusion in a fleet",
    "cluster: fetches at once",
    "cluster: flow control of agents",
    "cluster: length of the fleet status",
    "cluster: more nodes than Kubernetes supports",
    "cluster: namespaces of many pods",
    "cluster: nodes that wait in the order of pools",
    "cluster: rights of an agent",
    "cluster: signs for other actors",
    "cluster: signs of other actors",
    "cluster: states that could not be written",
    "commands: habits from other programs",
    "commands: usage errors and hints",
    "configs: arguments of the host",
    "configs: as the machine-config-operator",
    "configs: documents and types",
    "configs: each wrong value",
    "configs: kernel arguments",
    "configs: keys of another format",
    "configs: links and directories",
    "configs: mistakes of authors",
    "configs: modes and places",
    "configs: order of kernel arguments",
    "configs: other formats",
    "configs: password hashes",
    "configs: refused before the question",
    "configs: rules of sshd",
    "configs: rules of sudo",
    "configs: rules of systemd",
    "configs: versions of Ignition",
    "daemon: a start with damaged files",
    "daemon: actions on its own unit",
    "daemon: clocks after 2262",
    "daemon: hostile messages",
    "daemon: leftovers",
    "daemon: name servers that do not answer",
    "daemon: no bug ends it",
    "daemon: places for root",
    "daemon: words that others choose",
    "decisions: a row for each",
    "decisions: begin of a lease",
    "decisions: deadline of an action",
    "decisions: durable removals of directories",
    "decisions: durable removals",
    "decisions: durable renames",
    "decisions: empty password hashes",
    "decisions: etcd before a fallback",
    "decisions: kernels that are refused",
    "decisions: lease before each action",
    "decisions: lost leases",
    "decisions: order of a revert",
    "decisions: order of steps in the store",
    "decisions: renewal of a lease",
    "decisions: restarts without end",
    "decisions: slot before a reboot",
    "docs: open questions of a user",
    "docs: order of work",
    "docs: organisation and language",
    "docs: what was not tried",
    "domains: equal values for the kubelet",
    "domains: newer keys of CRI-O",
    "domains: unknown keys of CRI-O",
    "etcd: processes that look like a member",
    "fence: who gets the real-time class",
    "files: directories of users",
    "files: ignored for mode or owner",
    "files: known before the lease",
    "files: paths that do not last",
    "files: synced links",
    "files: what is in the way",
    "history: boots of others",
    "leases: lost while users are warned",
    "peers: MachineConfigNode",
    "peers: a FleetLock server of others",
    "peers: a drain that cannot be withdrawn",
    "peers: clocks of other holders",
    "peers: custom pools",
    "peers: faults of a FleetLock server",
    "peers: holders that took a lease over",
    "peers: image mode",
    "peers: kubectl drain",
    "peers: leases of medik8s",
    "peers: measurements of a user",
    "peers: nodes that end cordoned",
    "peers: nodes without a config",
    "peers: pods that are left",
    "peers: steady state of FleetLock",
    "peers: what worked",
    "plans: for this host",
    "plans: two dozen changes",
    "plans: values of changes",
    "plans: versions of the host that come back",
    "policy: instances and templates",
    "policy: invalid files",
    "policy: misspelt names",
    "policy: names of instances",
    "policy: read again by a reload",
    "rpm-ostreed: boot entries",
    "rpm-ostreed: deployments of other programs",
    "rpm-ostreed: failed transactions",
    "rpm-ostreed: proxies that ended",
    "safe parts: counted at the end",
    "secrets: names in errors",
    "secrets: quotes in messages of other programs",
    "services: away for a while",
    "services: results that were lost",
    "stand-in: actions of polkit",
    "stand-in: boot entries",
    "stand-in: cancelled pulls",
    "stand-in: checks after a staging",
    "stand-in: failures after a staging",
    "stand-in: merge commits",
    "stand-in: metadata of commits",
    "stand-in: no package of rpm-ostree",
    "stand-in: tasks of layering",
    "stand-in: trees without an rpmdb",
    "stand-in: types of properties",
    "stand-in: unit file",
    "store: damaged content",
    "store: damaged rows",
    "store: records of newer versions",
    "store: writes that fail",
    "units: aliases",
    "units: automatic restarts",
    "units: changed templates",
    "units: drift of links",
    "units: drop-ins without a unit",
    "units: enabled by a first config",
    "units: enabled without a unit",
    "units: failed units that were taken away",
    "units: generators",
    "units: ignored lines",
    "units: install sections",
    "units: instances of a changed template",
    "units: links of an admin",
    "units: links of other units",
    "units: masks",
    "units: oneshots",
    "units: other units in Also=",
    "units: presets",
    "units: proof after an update",
    "units: scripts that cannot start",
    "units: slices and scopes",
    "units: sockets and their services",
    "units: start conditions",
    "units: starts without an end",
    "units: switched off by an alias",
    "units: unit files of a staged OS",
    "units: units of the next OS",
    "units: units that leave",
    "units: what stops along",
    "units: what systemd can do with a unit",
    "updates: budget of fallback reboots",
    "updates: each end has an outcome",
    "updates: large configs",
    "updates: legal states after any failure",
    "updates: limits after a failure",
    "updates: requests are recorded first",
    "updates: size of what a revert needs",
    "updates: what was left half-way",
    "users: JSON schemas",
    "users: configs that remove most entries",
    "users: diffs of a verification",
    "users: entries that leave",
    "users: first trial of configs",
    "users: first trial of updates",
    "users: history in Cockpit",
    "users: names and paths by mistake",
    "users: output of a terminal",
    "users: paths that cannot be written",
    "users: plans of large configs",
    "users: search of the site",
    "users: the interpreter of the package",
    "users: the last way in",
    "users: the plan of a rollback",
    "users: units that exist nowhere",
)
"""What the outside reviews found. A finding keeps its test, or gets a reason in tests/findings_without_test.txt."""


def _names() -> Iterator[str]:
    for finding in findings.findings():
        yield from findings.names_of(finding.name)
    yield from findings.without_test()


NAMES = frozenset(_names())


@pytest.mark.parametrize("finding", FOUND)
def test_every_finding_has_a_test_or_a_reason(finding: str) -> None:
    assert finding in NAMES | removed.words("finding"), (
        "the test of this finding has no marker any more, and there is no reason for that"
    )


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_is_an_area_and_a_topic_in_words(name: str) -> None:
    assert findings.area_of(name)
    assert not re.search(r"\b[A-Za-z]+-?\d+\b", name.partition(": ")[2]), "a code says nothing to a reader"


def test_every_rule_is_a_sentence() -> None:
    rules = {finding.rule for finding in findings.findings()}
    assert not [rule for rule in rules if not rule.endswith(".") or rule[0].islower() or "|" in rule]


def test_no_reason_is_empty() -> None:
    assert all(findings.without_test().values())
