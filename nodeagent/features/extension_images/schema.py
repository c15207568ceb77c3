# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final

from nodeagent.contract.keys import Keys, about


class PlannedImage(Keys):
    name: Annotated[str, about("name under which systemd-sysext merges it")]
    path: Annotated[str, about("path in the config")]
    digest: Annotated[str, about("sha256- or sha512- and the digest in hexadecimal")]
    source: Annotated[str, about("address without its query")]
    bytes: Annotated[int | None, about("size of the image on this host; null if it is to be fetched")]
    units: Annotated[list[str], about("units that the plan reloads, restarts or starts because of it")]


PLAN: Final = {"images": Annotated[list[PlannedImage], about("images of system extensions that the update writes")]}
