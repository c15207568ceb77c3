# SPDX-License-Identifier: Apache-2.0
"""The subject and the expiry of certificates, and nothing of keys."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.core.plan.change import Detail
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.plan_values import MAX_CERTIFICATES, with_values
from nodeagent.core.validate.certificates import MAX_BYTES, certificate, certificates, named
from nodeagent.domains import default_policy
from nodeagent.report.plan_diff import diffs

PATH = "/etc/pki/ca-trust/source/anchors/ca.crt"
# Of a real certificate, made with openssl: CN=ring, until 28 October 2126.
REAL = """\
MIIBdTCCARugAwIBAgIUYNG0oG/Le+DxbFTJKSwB5aymssQwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEcmluZzAgFw0yNjExMjExMjA2NDBaGA8yMTI2MTAyODEyMDY0
MFowDzENMAsGA1UEAwwEcmluZzBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABMoa
M75hcGLTn4z9lE5BSbdZla6E7IEj5oghxUzQZyvZp7ZypHBmkqcIS6VjyDMeQxFj
/umd5dCtRrUsTIygXvOjUzBRMB0GA1UdDgQWBBSxczJDnaAhU5my/fvrFETiG2p5
3zAfBgNVHSMEGDAWgBSxczJDnaAhU5my/fvrFETiG2p53zAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIBYm9mZjkh152o9ylqy9jZV+/vXWsXC9Kyi3
owcFLt9qAiEAnBS5VjmrTonrhI0wKv+RR1ZUCHQxRKmW0GA1vT1V19c=
"""
REAL_DER = base64.b64decode(REAL)
KEY = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
CN, OU, SERIAL = b"\x55\x04\x03", b"\x55\x04\x0b", b"\x55\x04\x05"


def tlv(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    size = bytes((len(body),)) if len(body) < 0x80 else b"\x82" + len(body).to_bytes(2, "big")
    return bytes((tag,)) + size + body


def attribute(identifier: bytes, text: bytes, tag: int = 0x0C) -> bytes:
    return tlv(0x31, tlv(0x30, tlv(0x06, identifier), tlv(tag, text)))


def der(*subject: bytes, expires: bytes = tlv(0x17, b"270131000000Z"), version: bool = True) -> bytes:
    validity = tlv(0x30, tlv(0x17, b"250131000000Z"), expires)
    head = [tlv(0xA0, tlv(0x02, b"\2"))] if version else []
    signed = tlv(0x30, *head, tlv(0x02, b"\1"), tlv(0x30), tlv(0x30), validity, tlv(0x30, *subject))
    return tlv(0x30, signed, tlv(0x30), tlv(0x03, b"\0"))


def pem(content: bytes, label: bytes = b"CERTIFICATE") -> bytes:
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label, base64.encodebytes(content), label)


def test_a_real_one() -> None:
    (real,) = certificates(pem(REAL_DER))
    assert (real.subject, real.expires) == ("CN=ring", "2126-10-28")
    assert real.digest == hashlib.sha256(REAL_DER).hexdigest()
    assert certificates(REAL_DER) == (real,)


@pytest.mark.parametrize(
    "block",
    [pem(REAL_DER, b"PRIVATE KEY"), pem(REAL_DER + bytes(2 * MAX_BYTES))],
    ids=["of another kind", "that is too large"],
)
def test_a_block_is_not_decoded(block: bytes) -> None:
    assert certificates(block) == ()
    assert named(block) == block


@pytest.mark.parametrize(
    ("content", "subject", "expires"),
    [
        (der(attribute(OU, b"site"), attribute(CN, b"ca")), "OU=site, CN=ca", "2027-01-31"),
        (der(attribute(CN, b"ca"), version=False), "CN=ca", "2027-01-31"),
        (der(attribute(CN, b"a"), expires=tlv(0x17, b"500101000000Z")), "CN=a", "1950-01-01"),
        (der(attribute(CN, b"a"), expires=tlv(0x18, b"20500101000000Z")), "CN=a", "2050-01-01"),
        (der(attribute(SERIAL, b"1"), attribute(CN, "ä".encode("utf-16-be"), 0x1E)), "CN=ä", "2027-01-31"),
        (der(attribute(CN, b"a\x1b[31m\xff")), "CN=a?[31m\ufffd", "2027-01-31"),
        (der(attribute(CN, b"x" * 100)), f"CN={'x' * 64}", "2027-01-31"),
        (der(), "", "2027-01-31"),
    ],
    ids=["attributes", "version 1", "1950", "2050", "another encoding", "control characters", "long", "no subject"],
)
def test_what_is_read(content: bytes, subject: str, expires: str) -> None:
    read = certificate(content)
    assert read is not None
    assert (read.subject, read.expires) == (subject, expires)


@pytest.mark.parametrize("content", [der(expires=tlv(0x17, b"soon")), der(expires=tlv(0x02, b"\1")), b"\x30\x80", b""])
def test_what_is_none(content: bytes) -> None:
    assert certificate(content) is None


@given(st.integers(0, len(REAL_DER) - 1), st.integers(0, 255))
def test_any_damage_is_read_or_left_out(at: int, byte: int) -> None:
    damaged = REAL_DER[:at] + bytes((byte,)) + REAL_DER[at + 1 :]
    for content in (damaged, REAL_DER[:at]):
        read = certificate(content)
        assert read is None or str(read).isprintable()


def test_the_text_has_a_line_for_each() -> None:
    other = pem(b"not one")
    text = b"# site\n" + pem(REAL_DER) + KEY + other
    line = f"(certificate CN=ring, expires 2126-10-28, sha256 {hashlib.sha256(REAL_DER).hexdigest()[:12]})\n"
    assert named(text) == b"# site\n" + line.encode() + KEY + other


def planned(before: bytes, after: bytes, mode: int = 0o644) -> tuple[list[Detail], str]:
    """Return the details and the diff of a change."""
    sides = [MachineConfig("c", files={PATH: FileEntry(PATH, content, mode)}) for content in (before, after)]
    plan = with_values(make_plan(sides[0], sides[1], default_policy()), *sides)
    return [*plan.changes[0].details], diffs(plan, *sides)[f"file:{PATH}"]


@pytest.mark.finding("users: certificates of a plan", "Plans and diffs name certificates by subject and expiry.")
def test_a_plan_names_those_that_change() -> None:
    old, new, both = (pem(der(attribute(CN, name))) for name in (b"old", b"new", b"both"))
    details, diff = planned(both + old, both + new)
    assert [detail.what for detail in details] == ["content", "certificate", "certificate"]
    assert details[1].after.startswith("CN=new, expires 2027-01-31")
    assert details[2].before.startswith("CN=old, expires 2027-01-31")
    assert "-(certificate CN=old, expires 2027-01-31" in diff
    assert "+(certificate CN=new, expires 2027-01-31" in diff
    assert " (certificate CN=both" in diff
    assert "redacted" not in diff
    assert "hidden" not in diff


def test_a_key_beside_it_is_hidden() -> None:
    details, diff = planned(b"", pem(REAL_DER) + KEY)
    assert "CN=ring" in diff
    assert "c2VjcmV0" not in diff + str(details)


def test_the_certificates_of_a_private_file_are_not_named() -> None:
    details, _ = planned(b"", pem(REAL_DER), 0o600)
    assert details == [Detail("content")]


def test_a_bundle_is_bounded() -> None:
    bundle = b"".join(pem(der(attribute(CN, b"%d" % number))) for number in range(MAX_CERTIFICATES + 3))
    details, _ = planned(b"", bundle)
    assert details[-1] == Detail("certificates", after="3 more")
    assert len(details) == 1 + MAX_CERTIFICATES + 1
