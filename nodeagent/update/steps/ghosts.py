"""Units that an update took away after they had failed: systemd lists them as failed until they are forgotten."""

from __future__ import annotations

from contextlib import suppress

from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import unit_name_problem
from nodeagent.core.plan.steps import RemovePath, WritePath
from nodeagent.errors import AgentError
from nodeagent.update.run import Run


async def forget_ghosts(run: Run) -> None:
    """Forget the failures of units whose file is gone. What cannot be forgotten is no fault of the update."""
    # The revert removes what the update wrote.
    kind = WritePath if run.record.reverting else RemovePath
    for step in run.update.writes:
        if not isinstance(step, kind):
            continue
        directory, _, unit = step.path.rpartition("/")
        if directory != UNIT_DIR or unit_name_problem(unit) is not None:
            continue
        with suppress(AgentError):
            if (await run.ports.units.state(unit)).load == "not-found":
                await run.ports.units.reset_failed(unit)
