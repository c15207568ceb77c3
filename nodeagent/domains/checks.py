"""The checks of an update that need no host, shared by `nodeagent plan` and the daemon."""

from __future__ import annotations

from collections.abc import Sequence

from nodeagent import domains
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.reconcile import check_reconcilable, remedy
from nodeagent.errors import InvalidInput, Problem, Unreconcilable
from nodeagent.reasons import Reason


def check_update(old: MachineConfig, new: MachineConfig, name: str) -> None:
    """Check that ``new`` has valid content and can be applied to a running host. ``name`` is that of the new config.

    Raises ``InvalidInput`` (``InvalidContent``), with the problems of both checks, or ``Unreconcilable``.
    """
    # Both checks run before one of them raises, so that one attempt shows all problems.
    invalid, fixed = domains.validate(old, new), check_reconcilable(old, new)
    if invalid:
        message = f"{name} has invalid content: {_first(invalid)}"
        raise InvalidInput(message, reason=Reason.INVALID_CONTENT, problems=(*invalid, *fixed))
    if fixed:
        message = f"{name} cannot be applied to a running host: {_first(fixed)}"
        raise Unreconcilable(message, problems=fixed, hint=remedy(fixed))


def _first(problems: Sequence[Problem]) -> str:
    more = len(problems) - 1
    return f"{problems[0].path}: {problems[0].message}" + (f" (and {more} more)" if more else "")
