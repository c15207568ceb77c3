# SPDX-License-Identifier: Apache-2.0
"""Signature policies, the places of signatures, and keys, together with the files of the host."""

from __future__ import annotations

import json

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.domains.signatures import DOMAIN
from nodeagent.errors import Problem
from tests.support.configs import config

POLICY = "/etc/containers/policy.json"
NAMESPACE = "/etc/crio/policies/app.json"
KEY, CA = "/etc/keys/release.gpg", "/etc/keys/fulcio.pem"
PLACES = "/etc/containers/registries.d"
QUAY = b"docker:\n  quay.io: {}\n"
# A host that has been read.
OTHER = {"/proc/meminfo": b""}


def policy(**requirement: object) -> bytes:
    return json.dumps({"default": [{"type": "signedBy", "keyType": "GPGKeys", **requirement}]}).encode()


SIGNED = policy(keyPath=KEY)
FULCIO = json.dumps({"default": [{"type": "sigstoreSigned", "fulcio": {"caPath": CA}}]}).encode()


def missing(old: MachineConfig, new: MachineConfig, **host: bytes) -> list[tuple[str, str]]:
    view = HostView({**OTHER, **host})
    return [(found.path, found.message.rpartition(" ")[2]) for found in DOMAIN.warnings(Sides(old, new, view))]


def test_a_key_that_is_nowhere_is_named() -> None:
    new = config(files={POLICY: SIGNED, NAMESPACE: FULCIO})
    assert missing(config(), new) == [(POLICY, KEY), (NAMESPACE, CA)]
    assert missing(config(), new, **{KEY: b"", CA: b""}) == []
    assert missing(config(), config(files={POLICY: SIGNED, KEY: b"x"})) == []
    data = config(files={POLICY: policy(keyData="QQ==")})
    assert missing(config(), data) == []


def test_a_key_that_leaves_with_the_config_is_named() -> None:
    old = config(files={POLICY: SIGNED, KEY: b"x"})
    assert missing(old, config(files={POLICY: SIGNED})) == [(POLICY, KEY)]


def test_a_key_that_was_missing_before_is_no_fault_of_the_update() -> None:
    old, new = config(files={POLICY: SIGNED}), config(files={POLICY: SIGNED + b"\n"})
    assert missing(old, new) == []


def test_a_plan_without_a_host_misses_no_key() -> None:
    assert list(DOMAIN.warnings(Sides(config(), config(files={POLICY: SIGNED})))) == []


def test_a_hidden_file_that_is_read_is_named() -> None:
    names = (".a.yaml", "a.yaml", ".b.yaml.swp", "more/.c.yaml")
    host = {f"{PLACES}/{name}": b"" for name in names}
    found = DOMAIN.warnings(Sides(config(), config(), HostView(host)))
    assert [problem.path for problem in found] == [f"{PLACES}/.a.yaml"]


def test_the_keys_of_the_host_are_read() -> None:
    sides = Sides(config(files={NAMESPACE: FULCIO}), config(files={POLICY: SIGNED}))
    assert set(DOMAIN.reads(sides)) == {f"{PLACES}/", KEY, CA}


def problems(old: MachineConfig, new: MachineConfig, host: dict[str, bytes]) -> list[Problem]:
    return list(DOMAIN.validate(Sides(old, new, HostView(host)), {}))


def test_a_namespace_of_two_files_is_refused() -> None:
    host = {f"{PLACES}/default.yaml": QUAY, f"{PLACES}/more/x.yaml": QUAY, f"{PLACES}/x.yaml.bak": QUAY}
    new = config(files={f"{PLACES}/a.yaml": QUAY})
    (problem,) = problems(config(), new, host)
    assert problem.path == f"{PLACES}/a.yaml"
    assert f"{PLACES}/default.yaml" in problem.message
    # In one file after the other, and as it was before.
    moved = config(files={f"{PLACES}/b.yaml": QUAY})
    assert problems(new, moved, {}) == []
    assert problems(new, config(files={f"{PLACES}/a.yaml": QUAY + b"  a.io: {}\n"}), host) == []
