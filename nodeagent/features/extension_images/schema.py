# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from nodeagent.contract.keys import Keys, about


class ImageSide(Keys):
    digest: Annotated[str, about("sha256- or sha512- and the digest in hexadecimal")]
    bytes: Annotated[int | None, about("size of the image on this host; null if it is not here")]
    version: Annotated[
        str,
        about("`SYSEXT_IMAGE_VERSION` of its extension-release, or the like; empty if it is not known"),
    ]


class PlannedImage(Keys):
    name: Annotated[str, about("name under which systemd-sysext merges it")]
    path: Annotated[str, about("path in the config")]
    change: Annotated[Literal["added", "modified", "removed"], about("what happens to it")]
    before: Annotated[ImageSide | None, about("the image of the present config; null for a new one")]
    after: Annotated[ImageSide | None, about("the image of the new config; null for one that leaves")]
    source: Annotated[str, about("address without its query; empty for one that leaves")]
    reloads_manager: Annotated[
        bool | None, about("whether the merge makes systemd read its units again; null if it is not known yet")
    ]
    names_units: Annotated[list[str], about("units that the image names, for systemd 261 and later")]
    units: Annotated[list[str], about("units that the plan reloads, restarts or starts because of it")]


PLAN: Final = {
    "images": Annotated[list[PlannedImage], about("images of system extensions that the update brings or takes away")]
}
