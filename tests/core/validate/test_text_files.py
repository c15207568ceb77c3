# SPDX-License-Identifier: Apache-2.0
"""registries.conf, certificates and unit files."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.validate import pem, registries_conf, unit_file

# --- registries.conf

HEAD = 'unqualified-search-registries = ["docker.io", "localhost:5000", "[::1]:5000"]\n'

GOOD_REGISTRIES = [
    "",
    HEAD,
    HEAD + 'short-name-mode = "enforcing"\ncredential-helpers = ["containers-auth.json"]\n',
    '[[registry]]\nlocation = "a.io/b"\nblocked = true\n',
    '[[registry]]\nprefix = "*.a.io"\n',
    '[[registry]]\nprefix = "x"\nlocation = "a.io"\n[[registry.mirror]]\nlocation = "m.io"\npull-from-mirror = "all"\n',
    '[[registry]]\nlocation = "a.io"\nmirror-by-digest-only = true\n[[registry.mirror]]\nlocation = "m.io"\n',
    '[aliases]\n"fedora" = "registry.fedoraproject.org/fedora"\n"gone" = ""\n',
    'key-of-the-future = 1\n[[registry]]\nlocation = "a.io"\nnew-thing = "x"\n',
    '[[registry]]\nprefix = "x"\nlocation = "a.io"\n[[registry]]\nprefix = "y"\nlocation = "a.io"\n',
]

BAD_REGISTRIES = [
    ("[[registry]\n", "is not TOML"),
    ('registry = "x"\n', "registry must be an array of tables"),
    ("registry = [1]\n", "registry must be an array of tables"),
    ('[registry]\nlocation = "a.io"\n', "registry must be an array of tables"),
    ("[[registry]]\nlocation = 5\n", "registry[0]: location must be a string"),
    ('[[registry]]\nlocation = "a.io"\nblocked = "yes"\n', "blocked must be true or false"),
    ("[[registry]]\ninsecure = true\n", "prefix and location are missing"),
    ('[[registry]]\nprefix = "a.io"\n', "location is missing"),
    ('[[registry]]\nlocation = "https://a.io"\n', "must not have a scheme"),
    ('[[registry]]\nprefix = "*.a.io/b"\n', "must look like *.example.com"),
    ('[[registry]]\nlocation = "a.io"\npull-from-mirror = "all"\n', "belongs to a mirror"),
    ('[[registry]]\nlocation = "a.io"\nmirror = "m.io"\n', "mirror must be an array of tables"),
    ('[[registry]]\nlocation = "a.io"\n[[registry.mirror]]\ninsecure = true\n', "mirror[0]: location is missing"),
    ('[[registry]]\nlocation = "a.io"\n[[registry.mirror]]\nlocation = 1\n', "mirror[0]: location must be a string"),
    ('[[registry]]\nlocation = "a.io"\n[[registry.mirror]]\nlocation = "http://m"\n', "mirror[0]: location must not"),
    (
        '[[registry]]\nlocation = "a.io"\n[[registry.mirror]]\nlocation = "m"\npull-from-mirror = "digest"\n',
        "pull-from-mirror must be one of all, digest-only, tag-only",
    ),
    (
        '[[registry]]\nlocation = "a.io"\nmirror-by-digest-only = true\n'
        '[[registry.mirror]]\nlocation = "m"\npull-from-mirror = "all"\n',
        "cannot be set where the registry has mirror-by-digest-only",
    ),
    (
        '[[registry]]\nprefix = "x"\nlocation = "a.io"\n[[registry]]\nlocation = "a.io"\nblocked = true\n',
        "registry[1]: 'a.io' is listed before with another value of blocked",
    ),
    ('unqualified-search-registries = "a"\n', "must be a list of strings"),
    (
        'unqualified-search-registries = ["bob:hunter2@a.io/path"]\n',
        "search-registries: 'a.io/path' is not a host name",
    ),
    ("unqualified-search-registries = [1]\n", "must be a list of strings"),
    ('unqualified-search-registries = ["a.io/path"]\n', "is not a host name"),
    ('unqualified-search-registries = ["https://a.io"]\n', "is not a host name"),
    ('short-name-mode = "often"\n', "short-name-mode must be one of"),
    ("short-name-mode = 1\n", "short-name-mode must be a string"),
    ('[aliases]\n"fedora" = "fedora"\n', "aliases: 'fedora' must be a registry and repository"),
    ('[aliases]\n"fedora" = "r.io/fedora:1"\n', "without tag or digest"),
    ("aliases = 1\n", "aliases must be a table"),
    ('[aliases]\n"fedora" = 5\n', "aliases: 'fedora' must be a string"),
    ('[[registry]]\nlocation = "a.io"\nmirror = [1]\n', "mirror must be an array of tables"),
    ("registries = 1\n", "registries must be a table, is an integer"),
    ("[registries]\nsearch = 1\n", "registries.search.registries must be a list"),
    (HEAD + "[registries.search]\nregistries = ['a']\n", "mixes tables of version 1"),
]


@pytest.mark.parametrize("text", GOOD_REGISTRIES)
def test_good_registries(text: str) -> None:
    assert list(registries_conf.check(text.encode())) == []
    assert list(registries_conf.check(text.encode(), version_1=False)) == []


@pytest.mark.parametrize(("text", "expected"), BAD_REGISTRIES)
def test_bad_registries(text: str, expected: str) -> None:
    found = list(registries_conf.check(text.encode()))
    assert any(expected in problem for problem in found), found


def test_version_1_alone() -> None:
    text = b"[registries.search]\nregistries = ['a.io']\n"
    assert list(registries_conf.check(text)) == []
    assert "only version 2 is read" in "".join(registries_conf.check(text, version_1=False))


@pytest.mark.finding(
    "daemon: a start with damaged files, daemon: no bug ends it",
    "Settings, and YAML and TOML of other programs, are invalid where a value does not fit its tag, is half a "
    "surrogate pair or has too many digits; no other error leaves their readers.",
)
def test_registries_not_text() -> None:
    assert list(registries_conf.check(b"a = '\xff'")) == ["is not UTF-8 at offset 5"]
    assert list(registries_conf.check(b"a = " + b"[" * 100_000)) == ["is nested too deeply"]
    assert list(registries_conf.check(b"a = " + b"9" * 5000)) == ["is not TOML: a number has too many digits"]


# --- certificates

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUaT20U4K8Bl+w125RfUDLyjb11sgwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjExMjE2NTNaGA8yMTI2MTAyODEyMTY1
M1owDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABH0A
TBrw7J0MrXTJ78lkZ2Mpi7UHRWdTu1k6JhwCrWK/Qo0EnqPuuKU0ITtjaOB5YlRD
50AMUzBjzRigODShjaCjUzBRMB0GA1UdDgQWBBRCARhs0zZUQfiLB0F9pY+DdWFE
dTAfBgNVHSMEGDAWgBRCARhs0zZUQfiLB0F9pY+DdWFEdTAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIQCt+L4QKzeW4Mnfu+4blFJpvk7Nnu7wnzJP
uHv7JaQqrgIgOVnXOcSP2IBjN762tbUiBdTPZF7Mep2/l5jBAueSH8Y=
-----END CERTIFICATE-----
"""
DER = base64.b64decode("".join(CERTIFICATE.splitlines()[1:-1]))
BODY = CERTIFICATE.split("-----")[2]


def pem_of(der: bytes, label: str = "CERTIFICATE") -> bytes:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n".encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n  \n",
        CERTIFICATE.encode(),
        CERTIFICATE.encode() * 3,
        CERTIFICATE.replace("\n", "\r\n").encode(),
        b"# a comment\nCN = test\n\n" + CERTIFICATE.encode() + b"\n# more\n",
        CERTIFICATE.rstrip("\n").encode(),
        DER,
        pem_of(DER + b"\x30\x00", "TRUSTED CERTIFICATE"),
        pem_of(DER, "X509 CERTIFICATE"),
        CERTIFICATE.encode() + pem_of(b"anything", "DH PARAMETERS"),
        b"[p11-kit-object-v1]\nclass: data\n",
    ],
)
def test_good_certificates(content: bytes) -> None:
    assert list(pem.check(content)) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"hello", "has no certificate"),
        (CERTIFICATE.replace("-----END CERTIFICATE-----", "").encode(), "line 1: BEGIN without END"),
        (CERTIFICATE.replace("-----BEGIN CERTIFICATE-----", "").encode(), "END without BEGIN"),
        (CERTIFICATE.replace("END CERTIFICATE", "END X509 CERTIFICATE").encode(), "END does not match"),
        (CERTIFICATE.replace("-----END CERTIFICATE-----", "", 1).encode() + CERTIFICATE.encode(), "BEGIN without END"),
        (CERTIFICATE.replace("-----BEGIN", "----BEGIN").encode(), "END without BEGIN"),
        (b"-----BEGIN CERTIFICATE\nx\n" + CERTIFICATE.encode(), "line 1: malformed PEM marker"),
        (CERTIFICATE.replace(BODY[5], "!").encode(), "is not base64"),
        (pem_of(DER[:-1]), "is cut off"),
        (pem_of(DER + b"x"), "data follows"),
        (pem_of(b"\x30\x00"), "parts of a certificate are missing"),
        (pem_of(b"\x30\x06\x30\x00\x30\x00\x30\x00"), "parts of a certificate are missing"),
        (pem_of(b"\x04\x00"), "is not a DER sequence"),
        (pem_of(b""), "is not a DER sequence"),
        (pem_of(b"\x30\x80"), "is not a DER sequence"),
        (DER[:-5], "is not a DER certificate: the certificate is cut off"),
        (pem_of(b"key", "PRIVATE KEY"), "has a private key"),
        (pem_of(b"key", "EC PRIVATE KEY"), "has a private key"),
    ],
)
def test_bad_certificates(content: bytes, expected: str) -> None:
    found = list(pem.check(content))
    assert any(expected in problem for problem in found), found


@given(st.binary(max_size=300))
def test_any_bytes_as_certificate(content: bytes) -> None:
    assert all(isinstance(problem, str) for problem in pem.check(content))
    assert all(isinstance(problem, str) for problem in pem.check(pem_of(content)))


# --- unit files


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n# only a comment\n",
        "[Unit]\nDescription=x\n\n[Service]\nExecStart=/bin/true\n",
        "[Service]\nExecStart=/bin/sh -c \\\n  'echo a' \\\n# comment inside\n  b\nRestart=no\n",
        "[Service]\nEnvironment=A=B=C\n ; indented comment\n  Type = simple\n",
        "[Service]\nExecStart=\n",
        "[X-Custom]\nKey=1\n",
        "[Unit]\r\nDescription=x\r\n",
        "\ufeff[Unit]\nDescription=grün\n",
        "[Unit]\nDescription=ends with backslashes \\\\\nAfter=a.service\n",
        "[Unit]\nDescription=last line continues \\",
    ],
)
def test_good_units(text: str) -> None:
    assert list(unit_file.check(text.encode())) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"[Unit]\nDescription=\0\n", "line 2: NUL byte"),
        (b"[Unit]\n\nDescription=\xff\n", "line 3: not UTF-8"),
        (b"[Unit\nDescription=x\n", "line 1: a section must be [Name]"),
        (b"[]\n", "line 1: a section must be [Name]"),
        (b"Description=x\n[Unit]\n", "line 1: an assignment before the first section"),
        (b"[Service]\nExecStart /bin/true\n", "line 2: neither a section nor key=value"),
        (b"[Service]\n=x\n", "line 2: a value without a key"),
        (b"[Service]\nA=b \\\n c\ngarbage\n", "line 4: neither"),
        (b"[Service]\nA=" + b"x" * (1024 * 1024) + b"\n", "line 2: longer than"),
        (b"<<<<<<< HEAD\n[Service]\n", "line 1: neither"),
    ],
)
def test_bad_units(content: bytes, expected: str) -> None:
    found = list(unit_file.check(content))
    assert any(expected in problem for problem in found), found


@given(st.binary(max_size=200))
def test_any_bytes_as_unit(content: bytes) -> None:
    assert all(isinstance(problem, str) for problem in unit_file.check(content))
