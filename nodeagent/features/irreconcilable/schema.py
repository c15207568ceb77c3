# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final

from nodeagent.contract.keys import about

STATUS: Final = {
    "left_out": Annotated[
        list[str], about("sections of the current config that this host does not have, such as storage.disks")
    ]
}
