# SPDX-License-Identifier: Apache-2.0
"""The kinds of operations that hold the lease of this node.

The operation of an update is its id. Any other is "KIND.ID".
"""

from __future__ import annotations

from typing import Final

# An operator holds the lease. The id makes the next one another operation than one whose lease was taken away.
BY_OPERATOR: Final = "maintenance"


def is_by_operator(operation: str) -> bool:
    return operation.partition(".")[0] == BY_OPERATOR
