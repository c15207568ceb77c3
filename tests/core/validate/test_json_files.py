# SPDX-License-Identifier: Apache-2.0
"""Pull secrets and signature policies."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.validate import pull_secret, signature_policy


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


AUTH = {"auth": b64("user:pass:word")}

GOOD_SECRETS: dict[str, Any] = {
    "one": {"auths": {"quay.io": AUTH}},
    "none": {"auths": {}},
    "path and port": {"auths": {"registry.example:5000/team": {**AUTH, "email": "x@example.com"}}},
    "user and password": {"auths": {"quay.io": {"username": "u", "password": "p"}}},
    "identity token": {"auths": {"quay.io": {"auth": "", "identitytoken": "t"}}},
    "credential helper": {"auths": {"quay.io": {}}, "credHelpers": {"quay.io": "ecr-login"}},
    "credential store": {"auths": {"quay.io": {}}, "credsStore": "x"},
    "other keys": {"auths": {"quay.io": AUTH}, "HttpHeaders": {}},
}

BAD_SECRETS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is not a JSON object"),
    "yaml": (b"auths: {}", "is not a JSON object"),
    "cut off": (b'{"auths": {"quay.io"', "not valid JSON"),
    "binary": (b'{"auths\0": 1}', "NUL"),
    "list": (b"[]", "must be an object, is a list"),
    "no auths": (b"{}", "auths is missing"),
    "auths is a list": (b'{"auths": []}', "auths must be an object"),
    "the file of docker login": (b'{"quay.io": {"auth": "YTpi"}}', "auths is missing"),
    "entry is text": (b'{"auths": {"quay.io": "YTpi"}}', "'quay.io': must be an object"),
    "no credentials": (b'{"auths": {"quay.io": {}}}', "'quay.io': has no credentials"),
    "auth is a number": (b'{"auths": {"quay.io": {"auth": 5}}}', "'quay.io': auth must be a string"),
    "not base64": (b'{"auths": {"quay.io": {"auth": "hunter2!"}}}', "'quay.io': auth is not base64"),
    "bad padding": (b'{"auths": {"quay.io": {"auth": "YTp"}}}', "'quay.io': auth is not base64"),
    "no colon": (b'{"auths": {"quay.io": {"auth": "aHVudGVyMg=="}}}', "does not decode to user:password"),
    "no user": (b'{"auths": {"quay.io": {"auth": "OmI="}}}', "empty user or password"),
    "no password": (b'{"auths": {"quay.io": {"auth": "YTo="}}}', "empty user or password"),
    "twice": (b'{"auths": {"quay.io": {"auth": "YTpi"}, "quay.io": {"auth": "YTpj"}}}', "occurs twice"),
}


@pytest.mark.parametrize("case", GOOD_SECRETS)
def test_good_secret(case: str) -> None:
    assert list(pull_secret.check(json.dumps(GOOD_SECRETS[case]).encode())) == []


@pytest.mark.parametrize("case", BAD_SECRETS)
def test_bad_secret(case: str) -> None:
    content, expected = BAD_SECRETS[case]
    (problem,) = pull_secret.check(content)
    assert expected in problem


def test_all_registries_are_named() -> None:
    content = b'{"auths": {"a.io": {}, "b.io": {"auth": "YTpi"}, "c.io": {"auth": "!"}}}'
    assert [problem.split("'")[1] for problem in pull_secret.check(content)] == ["a.io", "c.io"]


def test_a_password_in_the_name_of_a_registry_is_not_shown() -> None:
    (problem,) = pull_secret.check(b'{"auths": {"https://u:hunter2@quay.io": {}}}')
    assert "hunter2" not in problem
    assert "quay.io" in problem


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEF0123456789+/=", min_size=12))
def test_no_finding_holds_what_is_in_an_entry(secret: str) -> None:
    for entry in ({"auth": secret}, {"auth": b64(secret)}, {"username": secret}, secret, [secret]):
        for problem in pull_secret.check(json.dumps({"auths": {"quay.io": entry}}).encode()):
            assert secret not in problem
            assert b64(secret) not in problem


# --- policy.json

ANY = {"type": "insecureAcceptAnything"}
REJECT = {"type": "reject"}
KEY = {"type": "signedBy", "keyType": "GPGKeys", "keyPath": "/etc/pki/key.gpg"}
SIGSTORE = {"type": "sigstoreSigned", "keyPath": "/etc/containers/cosign.pub"}
FULCIO = {"caPath": "/ca.pem", "oidcIssuer": "https://issuer", "subjectEmail": "a@example.com"}
PKI = {"caRootsData": b64("x"), "subjectEmail": "a@example.com"}

GOOD_REQUIREMENTS: list[dict[str, Any]] = [
    ANY,
    REJECT,
    KEY,
    {"type": "signedBy", "keyType": "GPGKeys", "keyData": b64("x")},
    {"type": "signedBy", "keyType": "signedByGPGKeys", "keyPaths": ["/a", "/b"]},
    {**KEY, "signedIdentity": {"type": "matchRepository"}},
    {**KEY, "signedIdentity": {"type": "exactReference", "dockerReference": "a.io/b:c"}},
    {**KEY, "signedIdentity": {"type": "remapIdentity", "prefix": "a.io", "signedPrefix": "b.io"}},
    SIGSTORE,
    {**SIGSTORE, "rekorPublicKeyPath": "/rekor.pub", "signedIdentity": {"type": "matchRepoDigestOrExact"}},
    {"type": "sigstoreSigned", "keyDatas": [b64("x"), b64("y")]},
    {"type": "sigstoreSigned", "fulcio": FULCIO, "rekorPublicKeyData": b64("x")},
    {"type": "sigstoreSigned", "pki": PKI},
    {"type": "signedBaseLayer", "baseLayerIdentity": {"type": "matchExact"}},
]

BAD_REQUIREMENTS: list[tuple[Any, str]] = [
    ({"type": "acceptAnything"}, "type: must be one of insecureAcceptAnything"),
    ({}, "type: must be one of insecureAcceptAnything"),
    ("reject", "must be an object"),
    ({**ANY, "keyPath": "/x"}, "unknown key 'keyPath'"),
    ({"type": "signedBy", "keyType": "GPGKeys"}, "exactly one of keyPath, keyPaths, keyData"),
    ({**KEY, "keyData": b64("x")}, "exactly one of keyPath, keyPaths, keyData"),
    ({**KEY, "keyType": "PGP"}, "keyType: must be one of GPGKeys"),
    ({**KEY, "keyPath": "key.gpg"}, "keyPath: must be an absolute path"),
    ({**KEY, "keyPath": 5}, "keyPath: must be a string"),
    ({"type": "signedBy", "keyType": "GPGKeys", "keyData": "!"}, "keyData: must be base64"),
    ({"type": "signedBy", "keyType": "GPGKeys", "keyPaths": []}, "keyPaths: must not be empty"),
    ({**KEY, "signedIdentity": {"type": "x"}}, "signedIdentity.type: must be one of"),
    ({**KEY, "signedIdentity": {"type": "exactReference"}}, "dockerReference: is required"),
    ({**KEY, "signedIdentity": {"type": "matchExact", "x": 1}}, "signedIdentity: unknown key 'x'"),
    ({"type": "signedBaseLayer"}, "baseLayerIdentity: is required"),
    ({**SIGSTORE, "keyType": "GPGKeys"}, "unknown key 'keyType'"),
    ({**SIGSTORE, "rekorPublicKeyPath": "/a", "rekorPublicKeyData": b64("x")}, "at most one of rekor"),
    ({"type": "sigstoreSigned", "fulcio": FULCIO}, "fulcio needs one of rekor"),
    ({"type": "sigstoreSigned", "fulcio": {}, "rekorPublicKeyPath": "/a"}, "fulcio.oidcIssuer: is required"),
    ({"type": "sigstoreSigned", "pki": PKI, "rekorPublicKeyPath": "/a"}, "rekor keys cannot be combined with pki"),
    ({"type": "sigstoreSigned", "pki": {"caRootsPath": "/a"}}, "one of subjectEmail, subjectHostname"),
    (
        {"type": "sigstoreSigned", "pki": {**PKI, "caIntermediatesPath": "/a", "caIntermediatesData": b64("x")}},
        "cannot both be set",
    ),
]


@pytest.mark.parametrize("requirement", GOOD_REQUIREMENTS)
def test_good_requirement(requirement: Any) -> None:
    policy = {"default": [requirement], "transports": {"docker": {"": [ANY], "quay.io/x": [requirement, REJECT]}}}
    assert list(signature_policy.check(json.dumps(policy).encode())) == []


@pytest.mark.finding("attack: reads beside others", "No value of a managed file is quoted in a message.")
@pytest.mark.parametrize("key", ["type", "keyType", "keyPath", "keyData", "signedIdentity"])
def test_no_value_of_a_signature_policy_is_quoted(key: str) -> None:
    policy = {"default": [{**KEY, key: "hunter2"}]}
    found = list(signature_policy.check(json.dumps(policy).encode()))
    assert found
    assert not any("hunter2" in problem for problem in found)


@pytest.mark.parametrize(("requirement", "expected"), BAD_REQUIREMENTS)
def test_bad_requirement(requirement: Any, expected: str) -> None:
    policy = {"default": [REJECT], "transports": {"docker": {"quay.io": [requirement]}}}
    found = list(signature_policy.check(json.dumps(policy).encode()))
    assert any(expected in problem for problem in found), found
    assert all(problem.startswith("transports.docker.quay.io[0]") for problem in found)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is not a JSON object"),
        (b"[]", "must be an object"),
        (b"{}", "default: must have at least one requirement"),
        (b'{"default": []}', "default: must have at least one requirement"),
        (b'{"default": {}}', "default: must be a list"),
        (b'{"default": [{"type": "reject"}], "extra": 1}', "unknown key 'extra'"),
        (b'{"default": [{"type": "reject"}], "default": [{"type": "reject"}]}', "occurs twice"),
        (b'{"default": [{"type": "reject"}], "transports": []}', "transports: must be an object"),
        (b'{"default": [{"type": "reject"}], "transports": {"docker": []}}', "transports.docker: must be an object"),
        (b'{"default": [{"type": "reject"}], "transports": {"docker": {"": []}}}', "at least one requirement"),
    ],
)
def test_bad_policy(content: bytes, expected: str) -> None:
    found = list(signature_policy.check(content))
    assert any(expected in problem for problem in found), found


@given(st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    assert all(isinstance(problem, str) for problem in pull_secret.check(content))
    assert all(isinstance(problem, str) for problem in signature_policy.check(content))
