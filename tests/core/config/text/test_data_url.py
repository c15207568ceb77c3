# SPDX-License-Identifier: Apache-2.0
"""``data:`` URLs and gzip: what Ignition takes, what it refuses, and bounds on what comes out."""

from __future__ import annotations

import base64
import gzip
import tracemalloc
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.core.config.text.data_url import MAX_FILE_BYTES, ContentError, decode, gunzip

GOOD = {
    "data:,": b"",
    "data:,hello": b"hello",
    "data:,a,b": b"a,b",
    "data:,%48%65%6c%6C%6f": b"Hello",
    "data:,a%0Ab": b"a\nb",
    "data:,100%25": b"100%",
    "data:,a=b%3Dc==": b"a=b=c==",
    "data:,a%3D%0A": b"a=\n",
    "data:,a:b:c+d": b"a:b:c+d",
    "data:,%00%ff": b"\0\xff",
    "data:;base64,": b"",
    "data:;base64,aGk=": b"hi",
    "data:text/plain;base64,aGk=": b"hi",
    "data:text/plain;charset=utf-8;base64,aGkh": b"hi!",
    "data:text/plain;charset=utf-8,a": b"a",
    "data:application/x-gzip;base64,++//": b"\xfb\xef\xff",
    "data:x-custom/thing,a": b"a",
    'data:text/plain;note="a,b;c\\"d";base64,aGk=': b"hi",
    'data:text/plain;note="a,b",c,d': b"c,d",
}


@pytest.mark.parametrize("source", GOOD)
def test_is_decoded(source: str) -> None:
    assert decode(source) == GOOD[source]


BAD = {
    "": "must be a data: URL",
    "hello": "must be a data: URL",
    "/etc/passwd": "must be a data: URL",
    "DATA:,a": "must begin with data: in lower case",
    "http://user:secret@host/x,y": "nothing is fetched from 'http' URLs",
    "https://host/x?token=secret": "nothing is fetched from 'https' URLs",
    "s3://bucket/key": "nothing is fetched from 's3' URLs",
    "data:": "comma is missing",
    "data:hello": "comma is missing",
    "data:text/plain;base64": "comma is missing",
    "data:text,a": "malformed",
    "data:chemical/x-pdb,a": "malformed",
    "data:;base64;charset=utf-8,aGk=": "malformed",
    "data:;BASE64,aGk=": "malformed",
    "data:;charset,a": "malformed",
    'data:text/plain;note="a,b': "malformed",
    "data:te xt/plain,a": "malformed",
    "data:text/plain" + ";a=b" * 256 + ",a": "too long",
    "data:;base64,aGk": "3 characters are not a multiple of 4",
    "data:;base64,a": "not a multiple of 4",
    "data:;base64,aG=k": "misplaced padding",
    "data:;base64,====": "misplaced padding",
    "data:;base64,aGk=aGk=": "misplaced padding",
    "data:;base64,aG k": "character 3 of the data is white space: base64 -w0 writes one line",
    "data:;base64,aGk\n": "character 4 of the data is white space",
    "data:;base64,aG-_": "character 3 of the data is of the alphabet for URLs",
    "data:;base64,aGk%3D": "character 4 of the data is not in the alphabet",
    "data:;base64,aGké": "not in the alphabet",
    "data:,a b": "character 2 of the data must be percent-encoded",
    "data:,a\nb": "character 2 of the data must be percent-encoded",
    "data:,=\n": "character 2 of the data must be percent-encoded",
    'data:,{"a"}': "character 1 of the data must be percent-encoded",
    "data:,aé": "character 2 of the data must be percent-encoded",
    "data:,a\0": "character 2 of the data must be percent-encoded",
    "data:,%": "two hexadecimal digits",
    "data:,a%4": "two hexadecimal digits",
    "data:,%%41": "two hexadecimal digits",
    "data:,%zz": "two hexadecimal digits",
    "data:,%41%4g%42": "two hexadecimal digits",
    "data:,%=41": "two hexadecimal digits",
}


@pytest.mark.parametrize("source", BAD)
def test_is_refused(source: str) -> None:
    with pytest.raises(ContentError) as caught:
        decode(source)
    assert BAD[source] in str(caught.value)
    assert "secret" not in str(caught.value)


URL_CHARS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '<>#"{}|\\^[]`')


@given(st.text(st.sampled_from(URL_CHARS) | st.sampled_from("%=:0aF"), max_size=60))
@example("%3d")
@example("=%3d=")
@example("%3")
def test_percent_is_decoded_as_urllib_does(data: str) -> None:
    good = all(len(piece) >= 2 and set(piece[:2]) <= set("0123456789abcdefABCDEF") for piece in data.split("%")[1:])
    if good:
        assert decode("data:," + data) == unquote_to_bytes(data)
    else:
        with pytest.raises(ContentError, match="two hexadecimal digits"):
            decode("data:," + data)


@given(st.binary())
def test_every_encoding_gives_the_bytes_back(data: bytes) -> None:
    assert decode("data:," + quote(data)) == data
    assert decode("data:," + "".join(f"%{byte:02x}" for byte in data)) == data
    assert decode("data:;base64," + base64.b64encode(data).decode()) == data
    assert gunzip(gzip.compress(data, mtime=0)) == data


@given(
    st.text(max_size=50).map("data:".__add__) | st.text(max_size=50).map("data:;base64,".__add__) | st.text(max_size=50)
)
def test_any_text_gives_bytes_or_a_typed_error(source: str) -> None:
    try:
        decode(source)
    except ContentError as error:
        assert str(error)


def test_gzip_members_are_joined() -> None:
    assert gunzip(gzip.compress(b"a", mtime=0) + gzip.compress(b"") + gzip.compress(b"b")) == b"ab"


WHOLE = gzip.compress(b"hello" * 100, mtime=0)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (WHOLE[:-1], "truncated"),
        (WHOLE[:10], "truncated"),
        (WHOLE + WHOLE[:12], "truncated"),
        (b"hello", "not compressed"),
        (WHOLE + b"trailing", "damaged"),
        (WHOLE[:-8] + b"\0\0\0\0" + WHOLE[-4:], "damaged"),
        (gzip.compress(b"", mtime=0) * 1025, "more than 1024 members"),
    ],
)
def test_gzip_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ContentError, match=why):
        gunzip(data)


def test_gzip_limit_is_exact() -> None:
    packed = gzip.compress(bytes(100_000), mtime=0)
    assert len(gunzip(packed, 100_000)) == 100_000
    with pytest.raises(ContentError, match="more than 99999 bytes"):
        gunzip(packed, 99_999)


def test_gzip_bomb_takes_no_more_than_the_limit() -> None:
    bomb = gzip.compress(bytes(10 * MAX_FILE_BYTES), mtime=0)
    tracemalloc.start()
    with pytest.raises(ContentError, match=f"more than {MAX_FILE_BYTES} bytes"):
        gunzip(bomb)
    assert tracemalloc.get_traced_memory()[1] < 3 * MAX_FILE_BYTES
    tracemalloc.stop()
