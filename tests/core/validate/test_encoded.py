# SPDX-License-Identifier: Apache-2.0
"""Contents that were encoded twice, and modes without their zero, are warnings; what only looks like it is none."""

from __future__ import annotations

import base64
import gzip
import os
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.core.validate.encoded import doubt, mode_doubt
from nodeagent.domains import warnings

TWICE = pytest.mark.finding(
    "configs: refused before the question", "Content that was encoded twice, or is compressed, is a warning."
)
TEXT = b"[Service]\nEnvironment=A=1\n"
PEM = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@TWICE
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (base64.b64encode(TEXT), "is base64 of a text"),
        (base64.b64encode(TEXT) + b"\n", "is base64 of a text"),
        (base64.encodebytes(TEXT * 5), "is base64 of a text"),
        (base64.b64encode(PEM * 200), "is base64 of a text"),
        (base64.b64encode("Gruß\n".encode() * 900), "is base64 of a text"),
        (f"data:;base64,{base64.b64encode(TEXT).decode()}".encode(), "is a data: URL itself"),
        (b"data:,a%0Ab", "is a data: URL itself"),
        (quote(TEXT).encode(), "is percent-encoded"),
        (gzip.compress(TEXT, mtime=0), "compression: gzip unpacks it"),
        (b"\xef\xbb\xbf" + TEXT, "begins with a byte order mark"),
        (TEXT.decode().encode("utf-16"), "begins with UTF-16"),
    ],
)
def test_content_that_is_encoded_once_more(content: bytes, words: str) -> None:
    assert words in doubt("/etc/app.conf", content)
    (problem,) = warnings(MachineConfig("old"), MachineConfig("new", {"/etc/a": FileEntry("/etc/a", content)}))
    assert problem.path == "/etc/a"
    assert "Environment" not in problem.message


@TWICE
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/etc/app.conf", TEXT),
        ("/etc/app.conf", b""),
        ("/etc/app.pem", PEM),
        ("/etc/hostname", b"node1\n"),
        ("/etc/machine-id", b"0123456789abcdef0123456789abcdef\n"),
        ("/etc/wireguard/key", base64.b64encode(bytes(range(32))) + b"\n"),
        ("/etc/token", b"abcdefghijklmnopqrstuvwxyzABCDEF"),
        ("/etc/names", b"one\ntwo\nthree\nfour\nfive\nsixsixsix\n"),
        ("/etc/secret.b64", base64.b64encode(TEXT)),
        ("/etc/keymap.gz", gzip.compress(TEXT, mtime=0)),
        ("/etc/url", b"https://proxy.example/a%20b%2Fc\n"),
        ("/etc/config.yaml", b"data: a, b\n"),
        ("/etc/config.yaml", b"data:\n  key: a,b\n"),
    ],
)
def test_content_that_only_looks_like_it(path: str, content: bytes) -> None:
    assert doubt(path, content) == ""


@given(st.integers(1, 200))
def test_no_key_is_taken_for_a_text(size: int) -> None:
    assert doubt("/etc/key", base64.b64encode(b"\x80" + os.urandom(size))) == ""


@given(st.binary(max_size=200))
def test_every_content_has_an_answer(content: bytes) -> None:
    doubt("/etc/x", content)


@pytest.mark.finding(
    "configs: refused before the question", "A mode without its leading zero that is a mode by chance is a warning."
)
@pytest.mark.parametrize(
    ("mode", "words"),
    [(400, "0620: 400 is decimal"), (444, "0444 is meant, write that (292 in"), (0o644, ""), (0o400, "")],
)
def test_a_mode_without_its_zero(mode: int, words: str) -> None:
    assert words in mode_doubt(mode) if words else mode_doubt(mode) == ""
