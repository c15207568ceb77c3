# SPDX-License-Identifier: Apache-2.0
"""Whether a CertificateSigningRequest may be approved: it is that of an agent, for its own node, and nothing more.

The signer of Kubernetes signs any subject, so the approver has to read the request: PKCS#10 (RFC 2986), exactly as the
agent makes it. There is nothing to choose in it but the name of the node and the key. Everything else is compared with
the one allowed value, and what is not expected is an error, not skipped: another attribute of the subject, a second
common name, subject alternative names and other extensions, another kind of key.

The signature is not verified here: the API server does so when the object is created.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

from nodeagent.core.coordination.kube_objects import CertificateRequest, RequestSpec
from nodeagent.errors import Refused
from nodeagent.features.certificates.decide.client_certificate import GROUP, SIGNER, USAGES, request_name, user_of
from nodeagent.features.certificates.reasons import CertificateReason

# Bytes of the request in PEM. One for the longest subject has less than a thousand.
MAX_REQUEST: Final = 4096
_PEM: Final = re.compile(
    rb"-----BEGIN CERTIFICATE REQUEST-----\n((?:[A-Za-z0-9+/=]+\n)+)-----END CERTIFICATE REQUEST-----\n?"
)
# The name of a Node: RFC 1123, in lower case.
_NODE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?")

_INTEGER: Final = 0x02
_BIT_STRING: Final = 0x03
_OBJECT: Final = 0x06
_UTF8: Final = 0x0C
_PRINTABLE: Final = 0x13
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_ATTRIBUTES: Final = 0xA0

_ORGANIZATION: Final = bytes.fromhex("55040a")
_COMMON_NAME: Final = bytes.fromhex("550403")
# id-ecPublicKey with the curve P-256, and ecdsa-with-SHA256.
_P256: Final = bytes.fromhex("06072a8648ce3d020106082a8648ce3d030107")
_ECDSA_SHA256: Final = bytes.fromhex("06082a8648ce3d040302")
# No unused bits, and a point that is not compressed; then 32 bytes for each coordinate.
_POINT: Final = b"\x00\x04"
_POINT_LENGTH: Final = 66


def requested_node(pem: bytes) -> str:
    """Return the node that the subject names. Raises ``ValueError`` with what is wrong with the request."""
    info, algorithm, signature = _parts(_only(_decoded(pem), _SEQUENCE), _SEQUENCE, _SEQUENCE, _BIT_STRING)
    version, subject, key, attributes = _parts(info, _INTEGER, _SEQUENCE, _SEQUENCE, _ATTRIBUTES)
    # Version 1 has the number 0 (RFC 2986).
    if version != b"\x00":
        raise ValueError("its version is not 1")
    node = _node(subject)
    curve, point = _parts(key, _SEQUENCE, _BIT_STRING)
    if curve != _P256 or not point.startswith(_POINT) or len(point) != _POINT_LENGTH:
        raise ValueError("its key is not one of the curve P-256")
    if attributes:
        raise ValueError("it requests extensions, for example subject alternative names")
    # The first byte of a bit string counts the unused bits of its last byte.
    if algorithm != _ECDSA_SHA256 or not signature.startswith(b"\x00"):
        raise ValueError("it is not signed with ECDSA and SHA-256")
    return node


def _decoded(pem: bytes) -> bytes:
    match = _PEM.fullmatch(pem) if len(pem) <= MAX_REQUEST else None
    text = match[1].replace(b"\n", b"") if match is not None else b""
    try:
        der = base64.b64decode(text, validate=True)
    except binascii.Error:
        der = b""
    # Some decoders accept padding and bits that others do not.
    if not der or base64.b64encode(der) != text:
        raise ValueError("it is not one certificate request in PEM")
    return der


def _node(subject: bytes) -> str:
    names: list[tuple[bytes, str]] = []
    while subject:
        attribute, subject = _read(subject, _SET)
        kind, value = _read(_only(attribute, _SEQUENCE), _OBJECT)
        text = _only(value, _PRINTABLE if value[:1] == bytes([_PRINTABLE]) else _UTF8)
        names.append((kind, text.decode(errors="replace")))
    if [kind for kind, _ in names] != [_ORGANIZATION, _COMMON_NAME]:
        raise ValueError("its subject is not one organization and one common name")
    (_, organization), (_, user) = names
    if organization != GROUP:
        raise ValueError(f"its organization is not {GROUP}")
    node = user.removeprefix(user_of(""))
    if user != user_of(node) or len(node) > 253 or _NODE.fullmatch(node) is None:
        raise ValueError(f"its common name is not {user_of('NODE')}")
    return node


def _parts(content: bytes, *tags: int) -> list[bytes]:
    """Return the contents of the elements that follow each other, with these tags and nothing behind them."""
    parts = []
    for tag in tags:
        part, content = _read(content, tag)
        parts.append(part)
    if content:
        raise ValueError("it is not one certificate request in DER")
    return parts


def _only(content: bytes, tag: int) -> bytes:
    return _parts(content, tag)[0]


def _read(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """Return the content of the first element, and the rest. Its length must be in the one form of DER."""
    if len(data) >= 2 and data[0] == tag:
        begin, length = 2, data[1]
        if length >= 0x80:
            begin += length - 0x80
            length = int.from_bytes(data[2:begin])
        if begin + length <= len(data) and data[1:begin] == _length(length):
            return data[begin : begin + length], data[begin + length :]
    raise ValueError("it is not one certificate request in DER")


def _length(length: int) -> bytes:
    if length < 0x80:
        return bytes([length])
    size = (length.bit_length() + 7) // 8
    return bytes([0x80 + size]) + length.to_bytes(size)


# The group of the bootstrap tokens in packaging/kubernetes/bootstrap.yaml.
BOOTSTRAP_GROUP: Final = "system:bootstrappers:nodeagent"


@dataclass(frozen=True, slots=True)
class Applicant:
    """``renewal``: the request came with the certificate of the same node, so it gives no new rights."""

    node: str
    renewal: bool


def is_pending(request: CertificateRequest) -> bool:
    """Return whether the object is a request of an agent by its name and signer, without a decision."""
    spec, status = request.get("spec") or {}, request.get("status") or {}
    ours = request["metadata"]["name"].startswith("nodeagent-") and spec.get("signerName") == SIGNER
    return ours and not status.get("conditions") and not status.get("certificate")


def applicant_of(request: CertificateRequest) -> Applicant:
    """Check the object. Raises ``Refused`` (``CertificateUnsound``) with what is wrong."""
    name, spec = request["metadata"]["name"], request.get("spec") or {}
    try:
        try:
            pem = base64.b64decode(spec.get("request") or "", validate=True)
        except ValueError:
            raise ValueError("it has no request") from None
        node = requested_node(pem)
        if name != request_name(node, pem):
            raise ValueError(f"its name is not the one of this request of {node}")
        if spec.get("signerName") != SIGNER or sorted(spec.get("usages") or ()) != sorted(USAGES):
            raise ValueError(f"it is not for the signer {SIGNER} with the usages {', '.join(USAGES)}")
        # An agent leaves the life of its certificate to the cluster.
        if spec.get("expirationSeconds") is not None:
            raise ValueError("it sets the life of the certificate")
        return Applicant(node, _renews(node, spec))
    except ValueError as error:
        raise Refused(f"the request {name} cannot be approved: {error}", reason=CertificateReason.UNSOUND) from None


def _renews(node: str, spec: RequestSpec) -> bool:
    """Raises ``ValueError``. The API server writes user and groups of the client into the object."""
    user, groups = spec.get("username"), spec.get("groups") or ()
    if GROUP in groups and user == user_of(node):
        return True
    # The agent of another node must not get a certificate for this one, even if it is in the group of the bootstrap,
    # too.
    if BOOTSTRAP_GROUP not in groups or GROUP in groups:
        raise ValueError(f"it came from {user}, which is neither {user_of(node)} nor in the group {BOOTSTRAP_GROUP}")
    return False
