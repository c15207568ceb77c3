# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from nodeagent.settings.cluster import OptionalPath
from nodeagent.settings.part import Part


class ExtensionImageSettings(Part, frozen=True, forbid_unknown_fields=True):
    """Images of system extensions that a config names by URL and digest.

    ``max_bytes``: largest image that is fetched, and the most that images may have together that no config uses any
    more. 0: nothing is fetched, and a config that needs an image is rejected. 2 GiB: images of extensions have 10 to
    500 MB.

    ``ca``: PEM file with the certificate authority of the servers; "" for the authorities of the host.

    ``timeout``: longest time for one attempt to fetch an image, in seconds. The next one continues where it ended.
    1800: a large image over a slow link.
    """

    group = "extension_images"

    max_bytes: Annotated[int, Meta(ge=0, le=1 << 40)] = 2 << 30
    ca: OptionalPath = ""
    timeout: Annotated[float, Meta(ge=10, le=86400)] = 1800
