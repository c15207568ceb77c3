# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from nodeagent.contract.keys import Keys, about


class Request(Keys):
    name: Annotated[str, about("of the request")]
    node: Annotated[str, about("whose certificate it is; empty for one that was refused")]
    renewal: Annotated[bool, about("whether it came with the certificate of the same node")]
    refused: Annotated[str, about("why it was not approved; empty if it was, or fits")]


class Answer(Keys):
    schema: Annotated[Literal["nodeagent/fleet-approve/v1"], about("the schema of this object")]
    dry_run: Annotated[bool, about("whether requests were checked only")]
    requests: Annotated[list[Request], about("each request that was checked")]


ANSWERS: Final = {"nodeagent/fleet-approve/v1": Answer}
