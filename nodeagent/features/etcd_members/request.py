# SPDX-License-Identifier: Apache-2.0
"""The request of a call on the bus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeagent.errors import InvalidInput
from nodeagent.features.etcd_members.decide.membership import MemberRequest, OperationKind
from nodeagent.reasons import Reason


def request_of(operation: str, options: Mapping[str, Any]) -> MemberRequest:
    """Return the request of a call. Raises ``InvalidInput`` (``BadOption``)."""
    if operation not in list(OperationKind):
        raise InvalidInput("the operation must be join, leave or replace", reason=Reason.BAD_OPTION)
    kind = OperationKind(operation)
    for name, value in options.items():
        if name != "member" or not isinstance(value, str) or kind is not OperationKind.REPLACE:
            raise InvalidInput(f"the option {name} is unknown, or of the wrong type", reason=Reason.BAD_OPTION)
    return MemberRequest(kind, options.get("member", ""))
