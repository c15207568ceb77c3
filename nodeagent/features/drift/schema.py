# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final

from nodeagent.contract.keys import Keys, about


class Entry(Keys):
    entry: Annotated[str, about("an entry of the current config, as file:/etc/hosts")]
    why: Annotated[str, about("how it differs, without its content")]
    since: Annotated[str, about("when the difference was found first, RFC 3339")]
    by: Annotated[str, about("the program or the user that made it; empty if that is not known")]


STATUS: Final = {"drift": Annotated[list[Entry], about("entries that another program changed; empty without drift")]}
