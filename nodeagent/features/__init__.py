# SPDX-License-Identifier: Apache-2.0
"""The features: one folder each, with all that is about it. A feature leaves with its folder and its line in ``NAMES``.

The package of a feature has what is needed without its door, if any: its ``COMMANDS``, ``OPTIONS``, ``EXTENDS``,
``ROWS`` of the status, ``HISTORY`` and ``PLAN_LINES`` for the command line, its ``TREES`` of an admin, and its
``DOMAINS``: pure modules with a ``DOMAIN``. Its door has the rest, and is imported when something asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from nodeagent.commands import Command, Extension, HistoryRows, Option, PlanLines, StatusRows
from nodeagent.installed import AdminTree

if TYPE_CHECKING:
    from nodeagent.core.plan.change import Plan
    from nodeagent.core.plan.domain import Domain
    from nodeagent.door import Door

# Guards of an update are asked in this order.
NAMES: Final = (
    "fence",
    "alerts",
    "bootc",
    "bootloader",
    "boot_counting",
    "busy_pods",
    "certificates",
    "checks",
    "drift",
    "etcd_guard",
    "etcd_members",
    "extension_images",
    "fleetlock",
    "fragments",
    "hooks",
    "irreconcilable",
    "maintenance",
    "cluster",
    "mcd_import",
    "page",
    "reboot_on_request",
    "rpmostree",
    "safe_parts",
    "selfcheck",
    "slots",
    "soft_reboot",
    "trial",
    "uncordon",
    "update_graph",
    "windows",
)


def commands(name: str) -> Sequence[Command]:
    """Return the commands of the feature of a folder."""
    listed: Sequence[Command] = getattr(import_module(f"{__name__}.{name}"), "COMMANDS", ())
    return listed


def options() -> Sequence[Option]:
    """Return the options that the features add to ``nodeagent apply``."""
    return [option for package in _packages() for option in getattr(package, "OPTIONS", ())]


def extensions(command: str) -> Sequence[Extension]:
    """Return what the features add to a command of the base."""
    added = [extension for package in _packages() for extension in getattr(package, "EXTENDS", ())]
    return [extension for extension in added if extension.command == command]


def status_rows() -> Sequence[StatusRows]:
    """Return the rows that the features add to the status."""
    return [rows for package in _packages() for rows in getattr(package, "ROWS", ())]


def plan_lines() -> Sequence[PlanLines]:
    """Return the lines that the features add to a plan."""
    return [lines for package in _packages() for lines in getattr(package, "PLAN_LINES", ())]


def history_rows() -> Sequence[HistoryRows]:
    """Return what the features add to the history."""
    return [rows for package in _packages() for rows in getattr(package, "HISTORY", ())]


def trees() -> Sequence[AdminTree]:
    """Return the directories of an admin that the features read."""
    return [tree for package in _packages() for tree in getattr(package, "TREES", ())]


def plan_parts(plan: Plan) -> Mapping[str, Any]:
    """Return the keys of a plan's JSON that features make of the plan alone."""
    made = {lines.key: import_module(lines.of).part_of(plan) for lines in plan_lines() if lines.of}
    return {key: part for key, part in made.items() if part is not None}


def _packages() -> Iterator[ModuleType]:
    return (import_module(f"{__name__}.{name}") for name in NAMES)


def domains() -> Sequence[Domain]:
    """Return the configuration domains that the features bring."""
    return [import_module(module).DOMAIN for package in _packages() for module in getattr(package, "DOMAINS", ())]


@cache
def doors() -> Mapping[str, Door]:
    """Return the door of each feature, by the name of its folder."""
    return {name: import_module(f"{__name__}.{name}.door").DOOR for name in NAMES}
