# SPDX-License-Identifier: Apache-2.0
"""What the command line lists before its module is imported: commands and options, rows of the status and of
the history, and lines of a plan."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """``help`` is a phrase without a capital and without a period. ``module`` has ``add_arguments`` and ``run``.

    ``after`` is the command of the base that it follows in lists; "": it is the last one.
    ``under`` is the command of which it is a subcommand; "" for none; the first one has it as
    ``after`` as well. ``no_json`` is the reason of a command without ``--json``, a phrase.
    """

    name: str
    help: str
    module: str
    after: str = ""
    under: str = ""
    no_json: str = ""

    @property
    def about(self) -> str:
        """Return the description in its own help."""
        sentence = f"{self.help[0].upper()}{self.help[1:]}."
        return f"{sentence} There is no --json: {self.no_json}." if self.no_json else sentence

    @property
    def words(self) -> str:
        """Return its words on the command line."""
        return f"{self.under} {self.name}".lstrip()


class Option(NamedTuple):
    """An option of ``nodeagent apply`` with a value, and the options of the method Apply that it becomes.

    They are kept with the request and with its update (``Run.hold``). ``takes`` are their names, each with its form for
    the reference. ``module`` has ``read``, which returns them by name from the text of an operator. From them it makes
    ``begins``, words about when or how the update begins, and ``ends(options, plan)``, a line of the plan about what
    follows the update, "" for none. With ``planned``, ``planned(options, plan)`` returns keys of the plan's JSON. The
    door of the feature has ``check_request``. ``starts``: it says when an update may begin, so a reboot on request may
    have it as well. ``at_once`` is the name in ``takes`` with which the times of updates do not hold.
    """

    flag: str
    metavar: str
    help: str
    module: str
    takes: tuple[tuple[str, str], ...]
    starts: bool = False
    at_once: str = ""
    planned: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.takes)


class Extension(NamedTuple):
    """Options that a feature adds to ``command`` of the base. ``help`` is a phrase that its help ends with.

    ``module`` has ``add_arguments``, and ``run``, which returns None where none of the options is given: then the
    command does what it does without the feature. ``answer`` is the schema of the JSON that ``run`` prints.
    """

    command: str
    help: str
    module: str
    answer: str


class StatusRows(NamedTuple):
    """Rows of a feature in ``nodeagent status``. ``module`` has ``rows(part, now)``, which returns labels and texts.

    ``part`` is the value of ``key`` in the JSON of the status; there are no rows while it is null, false or empty.
    ``after`` is the row of the base that they follow; "": all rows about the host. With ``delays``, the part delays an
    update that is requested now, and ``module`` has ``delay(part, now)``, which says so to the operator.
    """

    key: str
    module: str
    after: str
    delays: bool = False


class PlanLines(NamedTuple):
    """Lines of a feature in the text of a plan. ``module`` has ``plan_lines(part)``, which returns them; "": the part
    is in the JSON only.

    ``part`` is the value of ``key`` in the JSON of the plan; there are no lines while it is null, false or empty.
    ``after`` is the line of the base that they follow. An unexpected value raises ``KeyError`` or ``TypeError``.
    ``of`` is the module whose ``part_of(plan)`` returns the part, None without one, where the plan alone decides it.
    """

    key: str
    module: str
    after: str
    of: str = ""


class HistoryRows(NamedTuple):
    """What a feature adds to ``nodeagent history``. ``part`` is the value of ``key`` in the JSON of an update.

    ``module`` has ``cell(part)`` for the column ``header`` of the list, which is left out where no update has the part,
    ``facts(part)``, which returns labels and texts, and ``course(trail)``, which returns lines below the course.
    """

    key: str
    module: str
    header: str
