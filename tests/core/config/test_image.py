# SPDX-License-Identifier: Apache-2.0
"""The forms of ``osImageURL``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config.image import ContainerImage, OstreeCommit, content_id, image_to_text, parse_image
from nodeagent.errors import InvalidInput

SHA = "0123456789abcdef" * 4
DIGEST = f"sha256:{SHA}"


@pytest.mark.parametrize(
    ("text", "refspec"),
    [
        (f"quay.io/org/os@{DIGEST}", f"ostree-unverified-registry:quay.io/org/os@{DIGEST}"),
        (f"docker://quay.io/org/os@{DIGEST}", f"ostree-unverified-registry:quay.io/org/os@{DIGEST}"),
        (f"quay.io:443/org/os:4.1@{DIGEST}", f"ostree-unverified-registry:quay.io:443/org/os@{DIGEST}"),
        (f"[::1]:5000/os@{DIGEST}", f"ostree-unverified-registry:[::1]:5000/os@{DIGEST}"),
        (f"ostree-image-signed:docker://q/os@{DIGEST}", f"ostree-image-signed:docker://q/os@{DIGEST}"),
        (f"ostree-remote-registry:fedora:q/os@{DIGEST}", f"ostree-remote-registry:fedora:q/os@{DIGEST}"),
        (f"ostree-remote-image:fedora:docker://q/os@{DIGEST}", f"ostree-remote-image:fedora:docker://q/os@{DIGEST}"),
        (f"ostree://fedora/fedora/x86_64/coreos/stable@{SHA}", "fedora:fedora/x86_64/coreos/stable"),
    ],
)
def test_the_refspec_for_rpm_ostree(text: str, refspec: str) -> None:
    image = parse_image(text)
    assert image.refspec == refspec
    assert content_id(image) in (SHA, DIGEST)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("quay.io/org/os:4.1", "ImageNotPinned"),
        ("ostree://fedora/stable", "ImageNotPinned"),
        (f"quay.io/org/os@sha256:{SHA[:-1]}", "ImageInvalid"),
        (f"quay.io/org/os@sha512:{SHA}", "ImageInvalid"),
        (f"quay.io/org/os@{DIGEST}@{DIGEST}", "ImageInvalid"),
        (f"oci:/tmp/os@{DIGEST}", "ImageInvalid"),
        (f"oci-archive://tmp/os@{DIGEST}", "ImageInvalid"),
        (f"ostree-unknown:q/os@{DIGEST}", "ImageInvalid"),
        (f"-rf@{DIGEST}", "ImageInvalid"),
        (f"q/o s@{DIGEST}", "ImageInvalid"),
        (f"ostree://fedora@{SHA}", "ImageInvalid"),
        (f"ostree://fedora/a//b@{SHA}", "ImageInvalid"),
        (f"ostree://fedora/--option@{SHA}", "ImageInvalid"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_image(text)
    assert caught.value.reason == reason
    assert repr(text)[1:-1] in caught.value.message or "digest" in caught.value.message


HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
NAME = st.from_regex(
    r"[a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?(:[0-9]{1,4})?/[a-z]{1,4}(/[a-z0-9]{1,6}){0,2}", fullmatch=True
)
SCHEMES = ("ostree-unverified-registry:", "ostree-image-signed:docker://", "ostree-remote-registry:r-1:")
IMAGES = st.builds(
    ContainerImage, st.sampled_from(SCHEMES), NAME, HEX.map(lambda checksum: f"sha256:{checksum}")
) | st.builds(
    OstreeCommit,
    st.from_regex(r"[a-z0-9_][a-z0-9._-]{0,6}", fullmatch=True),
    st.from_regex(r"[a-z0-9_]{1,4}(/[a-z0-9_][a-z0-9._-]{0,4}){0,3}", fullmatch=True),
    HEX,
)


@given(IMAGES)
def test_an_image_as_text_and_back(image: ContainerImage | OstreeCommit) -> None:
    assert parse_image(image_to_text(image)) == image


@given(st.text(max_size=80) | st.text("ostre-:/@.sha256abc", max_size=80))
def test_any_text_is_an_image_or_a_refusal(text: str) -> None:
    try:
        image = parse_image(text)
    except InvalidInput:
        return
    assert parse_image(image_to_text(image)) == image
