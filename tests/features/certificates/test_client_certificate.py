# SPDX-License-Identifier: Apache-2.0
"""The request for a certificate, each answer of the cluster to it, and when a certificate is renewed."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from nodeagent.errors import AgentError
from nodeagent.features.certificates.decide.client_certificate import (
    Validity,
    check_identity,
    issued,
    request_name,
    request_object,
)

PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
RFC_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def certificate(text: str) -> dict[str, Any]:
    return {"status": {"certificate": base64.b64encode(text.encode()).decode()}}


@pytest.mark.parametrize("node", ["n", "worker-1.example.com", "a" * 253, "b" * 199 + "." + "c" * 50])
def test_a_name_is_valid_and_the_same_each_time(node: str) -> None:
    name = request_name(node, b"request")
    assert RFC_1123.fullmatch(name)
    assert len(name) <= 253
    assert name == request_name(node, b"request") != request_name(node, b"another request")


def test_a_request_is_for_clients_only() -> None:
    spec = request_object("nodeagent-n-1", b"request")["spec"]
    assert spec["signerName"] == "kubernetes.io/kube-apiserver-client"
    assert spec["usages"] == ["digital signature", "client auth"]
    assert base64.b64decode(spec["request"]) == b"request"


@pytest.mark.parametrize("answer", [{}, {"status": None}, {"status": {"conditions": [{"type": "Approved"}]}}])
def test_not_issued_yet(answer: dict[str, Any]) -> None:
    assert issued("r", answer) is None


def test_a_chain_without_its_comments() -> None:
    assert issued("r", certificate("# leaf\n" + PEM + "# authority\n" + PEM.rstrip())) == (PEM * 2).encode()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"status": {"conditions": [{"type": "Denied", "message": "not ours"}]}}, "CertificateDenied"),
        ({"status": {"conditions": [{"type": "Failed"}]}}, "CertificateFailed"),
        ({"status": {"certificate": "%%%"}}, "CertificateFailed"),
        ({"status": {"certificate": "Zürich"}}, "CertificateFailed"),
        (certificate("no certificate"), "CertificateFailed"),
        (certificate(PEM * 3000), "CertificateFailed"),
    ],
)
def test_no_certificate(answer: dict[str, Any], reason: str) -> None:
    with pytest.raises(AgentError) as caught:
        issued("r", answer)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("user", "well"),
    [
        ({"username": "nodeagent:n", "groups": ["nodeagent", "system:authenticated"]}, True),
        ({"username": "nodeagent:other", "groups": ["nodeagent"]}, False),
        ({"username": "nodeagent:n", "groups": ["system:authenticated"]}, False),
        ({"username": "nodeagent:n"}, False),
        (None, False),
    ],
)
def test_the_identity(user: Any, well: bool) -> None:
    review = {"status": {"userInfo": user}}
    if well:
        check_identity("n", review)
        return
    with pytest.raises(AgentError) as caught:
        check_identity("n", review)
    assert caught.value.reason == "CertificateFailed"


def test_a_third_of_the_life_is_left_for_the_renewal() -> None:
    life = Validity(0, 300)
    assert life.renewal == 200
    assert not life.ended(299)
    assert life.ended(300)
