# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from nodeagent.contract.keys import Keys, about
from nodeagent.features.reboot_on_request.decide import RequestSource


class Request(Keys):
    id: Annotated[str, about("id of the request, and of its update")]
    source: Annotated[RequestSource, about("where it came from")]
    requester: Annotated[str, about("who requested it, or the path of the file")]
    reason: Annotated[str, about("why; empty without a reason")]
    since: Annotated[str, about("when it was requested; RFC 3339")]
    at_once: Annotated[bool, about("whether it passes over windows")]
    boot_staged: Annotated[bool, about("whether it may boot what another program has staged")]
    options: Annotated[dict[str, str], about("the options of features, as for `nodeagent apply`")]
    message: Annotated[str, about("what it waits for; empty for nothing")]


class Requirement(Keys):
    packages: Annotated[list[str], about("packages that require it, if that is known")]


class Answer(Keys):
    schema: Annotated[Literal["nodeagent/reboot-request/v1"], about("the schema of this object")]
    request: Annotated[str, about("id of the request")]
    source: Annotated[RequestSource, about("where the request came from that holds now")]
    outcome: Annotated[str, about("an outcome of the history, or `accepted` without `--wait`")]
    reason: Annotated[str, about("the reason of the outcome")]
    message: Annotated[str, about("the message of the outcome")]


STATUS: Final = {
    "reboot_request": Annotated[Request | None, about("the requested reboot; null without one")],
    "reboot_required": Annotated[Requirement | None, about("/run/reboot-required; null without the file")],
}
ANSWERS: Final = {"nodeagent/reboot-request/v1": Answer}
