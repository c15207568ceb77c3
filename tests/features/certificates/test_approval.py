# SPDX-License-Identifier: Apache-2.0
"""Which requests for a client certificate may be approved. The requests are made by the real openssl."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nodeagent.errors import Refused
from nodeagent.features.certificates.decide.approval import Applicant, applicant_of, is_pending, requested_node
from nodeagent.features.certificates.decide.client_certificate import request_name, request_object

NODE = "worker-1.example.com"
P256 = ("EC", "-pkeyopt", "ec_paramgen_curve:P-256")
JOIN = {"username": "system:bootstrap:07401b", "groups": ["system:bootstrappers:nodeagent", "system:authenticated"]}
RENEWAL = {"username": f"nodeagent:{NODE}", "groups": ["nodeagent", "system:authenticated"]}


def openssl(*words: str, stdin: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *words], input=stdin, capture_output=True, check=True).stdout


def pem_of(
    subject: str = f"/O=nodeagent/CN=nodeagent:{NODE}", *words: str, key: tuple[str, ...] = P256, config: str = ""
) -> bytes:
    private = openssl("genpkey", "-algorithm", *key)
    command = ["req", "-new", "-key", "/dev/stdin", "-config", config or "/dev/null", "-subj", subject, *words]
    return openssl(*command, stdin=private)


@pytest.fixture(scope="module")
def pem() -> bytes:
    return pem_of()


def signing_request(pem: bytes, node: str = NODE, by: Mapping[str, Any] = JOIN, **spec: Any) -> dict[str, Any]:
    found = request_object(request_name(node, pem), pem)
    found["spec"] |= {**by, **spec}
    found["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    return found


def refusal(request: Mapping[str, Any]) -> str:
    with pytest.raises(Refused) as caught:
        applicant_of(request)
    assert caught.value.reason == "CertificateUnsound"
    return caught.value.message


def test_a_first_request_and_a_renewal(pem: bytes) -> None:
    assert applicant_of(signing_request(pem)) == Applicant(NODE, renewal=False)
    assert applicant_of(signing_request(pem, by=RENEWAL)) == Applicant(NODE, renewal=True)


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("/O=system:masters/CN=nodeagent:n", "its organization is not nodeagent"),
        ("/O=nodeagent/CN=admin", "its common name is not nodeagent:NODE"),
        ("/O=nodeagent/CN=nodeagent:", "its common name is not nodeagent:NODE"),
        ("/O=nodeagent/CN=nodeagent:N", "its common name is not nodeagent:NODE"),
        ("/O=nodeagent/CN=nodeagent:n\n", "its common name is not nodeagent:NODE"),
        ("/CN=nodeagent:n", "one organization and one common name"),
        ("/CN=nodeagent:n/O=nodeagent", "one organization and one common name"),
        ("/O=nodeagent/CN=nodeagent:n/CN=admin", "one organization and one common name"),
        ("/O=nodeagent/O=system:masters/CN=nodeagent:n", "one organization and one common name"),
        ("/O=nodeagent/OU=x/CN=nodeagent:n", "one organization and one common name"),
        ("/O=nodeagent+O=system:masters/CN=nodeagent:n", "in DER"),
        ("/", "one organization and one common name"),
    ],
)
def test_another_subject(subject: str, why: str) -> None:
    with pytest.raises(ValueError, match="it") as caught:
        requested_node(pem_of(subject))
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        ("EC", "-pkeyopt", "ec_paramgen_curve:P-384"),
        ("EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"),
        ("RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
        ("ed25519",),
    ],
)
def test_another_key(key: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="its key is not one of the curve P-256"):
        requested_node(pem_of(key=key))


@pytest.mark.parametrize("extension", ["subjectAltName=DNS:kubernetes", "basicConstraints=CA:TRUE"])
def test_extensions(extension: str) -> None:
    with pytest.raises(ValueError, match="it requests extensions"):
        requested_node(pem_of(f"/O=nodeagent/CN=nodeagent:{NODE}", "-addext", extension))


def test_another_signature() -> None:
    with pytest.raises(ValueError, match="it is not signed with ECDSA and SHA-256"):
        requested_node(pem_of(f"/O=nodeagent/CN=nodeagent:{NODE}", "-sha512"))


def test_both_types_of_strings() -> None:
    assert requested_node(pem_of("/O=nodeagent/CN=nodeagent:n")) == "n"
    der = base64.b64decode(b"".join(pem_of("/O=nodeagent/CN=nodeagent:n").splitlines()[1:-1]))
    # The signature no longer fits; the API server checks it.
    printable = der.replace(b"\x0c\x09nodeagent", b"\x13\x09nodeagent")
    assert requested_node(armoured(printable)) == "n"


def armoured(der: bytes) -> bytes:
    text = base64.encodebytes(der)
    return b"-----BEGIN CERTIFICATE REQUEST-----\n" + text + b"-----END CERTIFICATE REQUEST-----\n"


def test_only_the_form_of_der(pem: bytes) -> None:
    """Each cut and each byte that is changed gives an error or the same node: no reader error, and no other node."""
    der = base64.b64decode(b"".join(pem.splitlines()[1:-1]))
    for end in range(len(der)):
        with pytest.raises(ValueError, match="it"):
            requested_node(armoured(der[:end]))
    with pytest.raises(ValueError, match="in DER"):
        requested_node(armoured(der + b"\0"))
    # The length of the whole in a longer form than needed, and without an end (BER).
    for other in (b"\x30\x82\x00" + der[2:], b"\x30\x80" + der[3:] + b"\0\0"):
        with pytest.raises(ValueError, match="in DER"):
            requested_node(armoured(other))
    names = set()
    for place in range(len(der)):
        for bit in (1, 32, 128):
            try:
                names.add(requested_node(armoured(der[:place] + bytes([der[place] ^ bit]) + der[place + 1 :])))
            except ValueError:
                continue
    # A letter of the name may become another one, and the key and the signature have no form.
    assert all(len(name) == len(NODE) and sum(a != b for a, b in zip(name, NODE, strict=True)) <= 1 for name in names)


@pytest.mark.parametrize(
    "change",
    [
        lambda pem: pem + pem,
        lambda pem: b"# comment\n" + pem,
        lambda pem: pem.replace(b"\n", b"\r\n"),
        lambda pem: pem.replace(b"-----END", b"====\n-----END"),
        lambda pem: pem.replace(b"REQUEST", b"")[:40],
        lambda _: b"",
        lambda pem: pem[:40] + b"A" * 5000 + pem[40:],
    ],
)
def test_only_one_pem(pem: bytes, change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="it is not one certificate request in"):
        requested_node(change(pem))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"request": "%"}, "it has no request"),
        ({"request": None}, "it is not one certificate request in PEM"),
        ({"signerName": "kubernetes.io/kubelet-serving"}, "it is not for the signer"),
        ({"usages": ["digital signature", "client auth", "server auth"]}, "with the usages"),
        ({"usages": ["client auth"]}, "with the usages"),
        ({"usages": None}, "with the usages"),
        ({"expirationSeconds": 10**9}, "the life of the certificate"),
        ({"username": "jane", "groups": ["system:authenticated"]}, "it came from jane"),
        ({"username": "nodeagent:other", "groups": ["nodeagent"]}, "it came from nodeagent:other"),
        # A certificate of another agent does not become a first request by another group.
        ({"username": "nodeagent:o", "groups": ["nodeagent", "system:bootstrappers:nodeagent"]}, "it came from"),
        ({"username": f"nodeagent:{NODE}", "groups": None}, "it came from"),
    ],
)
def test_another_object(pem: bytes, spec: dict[str, Any], why: str) -> None:
    assert why in refusal(signing_request(pem, **spec))


def test_the_name_is_that_of_the_request(pem: bytes) -> None:
    assert "its name is not the one" in refusal(signing_request(pem, node="other"))
    assert "its name is not the one" in refusal({**signing_request(pem), "metadata": {"name": "nodeagent-x"}})


def test_pending(pem: bytes) -> None:
    request = signing_request(pem)
    assert is_pending(request)
    assert not is_pending({**request, "status": {"conditions": [{"type": "Denied"}]}})
    assert not is_pending({**request, "status": {"certificate": "x"}})
    assert not is_pending({**request, "metadata": {"name": "csr-abc"}})
    assert not is_pending(signing_request(pem, signerName="example.com/x"))
