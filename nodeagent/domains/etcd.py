# SPDX-License-Identifier: Apache-2.0
"""etcd as a unit: a change restarts it after the check of the quorum, and its own answers prove that it works.

``core.plan.change`` names the unit, because each plan that stops it needs that check, also one by an entry of a user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from nodeagent.core.config.text import document
from nodeagent.core.plan.change import ETCD_UNIT, HIDDEN, KeyChange
from nodeagent.core.plan.domain import ByContent, Domain, MemberHealth, UnitFailure
from nodeagent.core.plan.policy import DAEMON_RELOAD, restart
from nodeagent.core.plan.sides import Sides
from nodeagent.errors import InvalidInput, Problem

# The EnvironmentFile= of the units of Debian and Fedora, and config files of --config-file.
FILES: Final = ("/etc/default/etcd", "/etc/etcd/etcd.conf", "/etc/etcd/etcd.conf.yaml", "/etc/etcd/etcd.conf.yml")
RESTART: Final = (restart(ETCD_UNIT),)
STATE: Final = "initial-cluster-state"


class EtcdDomain(Domain):
    def changes(self, sides: Sides) -> Sequence[KeyChange]:
        return [
            # An environment file may hold anything, also passwords.
            KeyChange(path, key, HIDDEN if key in was else "", HIDDEN if key in now else "", RESTART)
            for path, was, now in _changed(sides)
            for key in sorted({*was, *now})
            if was.get(key) != now.get(key)
        ]

    def validate(self, sides: Sides, changed: Mapping[str, bytes]) -> Iterator[Problem]:
        yield from super().validate(sides, changed)
        for path, was, now in _changed(sides):
            # A file that leaves the config differs too, and has no options to check.
            if path not in changed:
                continue
            # A directory that the file did not name before may have been a flag of the unit, so only a changed value
            # counts.
            if was.get("data-dir", now.get("data-dir")) != now.get("data-dir"):
                problem = "changes the data directory of etcd: the member would lose its log and its votes"
                yield Problem(path, f"{problem}; remove and add it")
            if was.get(STATE) == "existing" != now.get(STATE):
                yield Problem(path, f"{STATE} must stay existing: a member without data would make a second cluster")
            if now.get("force-new-cluster") not in (was.get("force-new-cluster"), None, "False", "false"):
                yield Problem(path, "force-new-cluster makes a cluster of this member alone, again at each start")

    def curable(self, failure: UnitFailure) -> bool:
        """An etcd that ends with its configuration ends with it after a boot, too."""
        return failure.unit != ETCD_UNIT


def _changed(sides: Sides) -> Iterator[tuple[str, Mapping[str, str], Mapping[str, str]]]:
    for path in FILES:
        was, now = sides.before.get(path), sides.after.get(path)
        if was != now:
            yield path, _options(path, was), _options(path, now)


def _options(path: str, content: bytes | None) -> dict[str, str]:
    """Return the options by the names of etcd's flags; {} for a file that cannot be read."""
    if content is None:
        return {}
    if path.endswith((".yaml", ".yml")):
        try:
            data = document.load(content, path)
        except InvalidInput:
            return {}
        return {str(key): str(value) for key, value in data.items()} if isinstance(data, dict) else {}
    pairs = [line.strip().partition("=") for line in content.decode(errors="replace").splitlines()]
    return {
        name.strip().removeprefix("ETCD_").lower().replace("_", "-"): value.strip().strip("\"'")
        for name, equals, value in pairs
        if equals and not name.startswith("#")
    }


def _yaml(content: bytes) -> Iterator[str]:
    try:
        if not isinstance(document.load(content, "the file"), dict):
            yield "must be a mapping of options"
    except InvalidInput as error:
        yield error.message


DOMAIN: Final = EtcdDomain(
    name="etcd as a unit",
    files=dict.fromkeys(FILES, ByContent(f"Restart {ETCD_UNIT}, if an option changes")),
    units={ETCD_UNIT: (DAEMON_RELOAD, *RESTART)},
    # The first two are environment files: systemd skips a line that it cannot read.
    contents=dict.fromkeys(FILES[2:], _yaml),
    health=(MemberHealth(ETCD_UNIT),),
)
