# SPDX-License-Identifier: Apache-2.0
"""The links below /etc/systemd/system that enable units: systemd.unit(5), "[Install] section".

A link is a path relative to that directory and a target: ``multi-user.target.wants/a.service``, or ``default.target``
for an alias. systemd goes by the names only: a unit is pulled in by the name of a link in a ``.wants`` directory, and
an alias by the last component of its target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.core.config.file_tree import DEV_NULL
from nodeagent.core.config.unit_names import is_template, template_of, unit_name_problem

# Directories of links that start a unit with another one.
SUFFIXES: Final = (".wants", ".requires", ".upholds")

Links = Mapping[str, str]
# The target that each link gets; None: it is removed.
LinkChanges = Mapping[str, str | None]


def last_part(path: str) -> str:
    return path.rpartition("/")[2]


def is_link_name(path: str) -> bool:
    """Return whether a path relative to the directory of units may be a link that enables a unit."""
    directory, _, name = path.rpartition("/")
    if unit_name_problem(name) is not None:
        return False
    return not directory or ("/" not in directory and directory.endswith(SUFFIXES))


def is_alias(path: str, target: str) -> bool:
    """Return whether a link is another name of a unit. A mask is none, and neither is a unit file that is a link."""
    return "/" not in path and target != DEV_NULL and path != last_part(target)


def belongs(path: str, target: str, unit: str) -> bool:
    """Return whether a link enables ``unit``. The links of all instances of a template belong to the template."""
    if "/" not in path and not is_alias(path, target):
        return False
    names = {last_part(path), last_part(target)}
    return unit in names or (is_template(unit) and unit in map(template_of, names))


def links_of(links: Links, unit: str) -> dict[str, str]:
    return {path: target for path, target in links.items() if belongs(path, target, unit)}


def fulfils(path: str, target: str | None, wanted: str) -> bool:
    """Return whether a link with this target (None: there is none) has the effect of one with the target ``wanted``."""
    if target is None:
        return False
    # The name of a link in a .wants directory counts, wherever it points to.
    return "/" in path or last_part(target) == last_part(wanted)
