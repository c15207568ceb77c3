# SPDX-License-Identifier: Apache-2.0
"""Tables that follow other programs, against a dated snapshot of the facts of those programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.core.config.ignition import VERSIONS
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.packages import EXTENSIONS, OPTIONAL, optional_of, packages_of
from nodeagent.core.plan.policy import Entry
from nodeagent.domains import default_policy
from nodeagent.domains.crio import RESTARTED
from nodeagent.domains.kubelet.keys import ZERO

FACTS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("followed.yaml").read_text())
MCO = FACTS["machine-config-operator"]


@pytest.mark.parametrize("program", FACTS)
def test_each_fact_has_its_source_and_its_day(program: str) -> None:
    assert FACTS[program]["source"]
    assert FACTS[program]["read"].year >= 2026


@pytest.mark.finding(
    "configs: as the machine-config-operator",
    "Packages of extensions are those of the machine-config-operator, old sets included.",
)
def test_packages_of_extensions() -> None:
    assert EXTENSIONS.keys() == MCO["extensions"].keys()
    for name, packages in MCO["extensions"].items():
        config = MachineConfig("", extensions=(name,))
        assert packages_of(config) | optional_of(config) == set(packages)
        assert packages_of(config) == set(MCO["legacy_extensions"].get(name, packages)), "enough for an old image"
    assert OPTIONAL.keys() == MCO["legacy_extensions"].keys()


def _actions(entry: Entry) -> Any:
    return [f"{a.type} {a.unit}".strip() for a in entry.actions] if entry.rule is None else "by content"


# The rule of nodeagent also compares contents, and never requests more than the operator does for the same change.
BY_CONTENT = {
    "/etc/containers/policy.json",
    "/etc/containers/registries.d",
    "/etc/crio/policies",
    "/etc/machine-config-daemon/no-reboot/containers-gpg.pub",
}


@pytest.mark.finding(
    "configs: as the machine-config-operator", "The built-in policy has each path of the machine-config-operator."
)
def test_paths_of_the_built_in_policy() -> None:
    policy = default_policy()
    for kind, found in (("files", policy.files), ("units", policy.units)):
        for key, actions in MCO[kind].items():
            entry = found.get(key) or found[f"{key}/"]
            assert _actions(entry) in ([actions, "by content"] if key in BY_CONTENT else [actions]), key
    assert policy.sshkey is not None
    assert _actions(policy.sshkey) == MCO["sshkey"]


@pytest.mark.finding("configs: versions of Ignition", "Each stable version of Ignition 3 is read.")
def test_versions_of_ignition() -> None:
    assert list(VERSIONS) == FACTS["ignition"]["versions"]


@pytest.mark.finding("domains: newer keys of CRI-O", "Keys of CRI-O that appeared in 2026 have their actions.")
def test_keys_of_crio() -> None:
    assert set(FACTS["cri-o"]["restarted"]) <= set(RESTARTED)


@pytest.mark.finding(
    "domains: equal values for the kubelet",
    "What the kubelet takes for the same value changes nothing, and is waited for nowhere.",
)
def test_defaults_of_the_kubelet() -> None:
    assert dict(ZERO) == FACTS["kubelet"]["zero_is_default"]
