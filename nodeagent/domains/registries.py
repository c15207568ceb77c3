"""The sources of images: registries.conf and its drop-ins."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from nodeagent.core.plan.change import Change
from nodeagent.core.plan.domain import ByContent, Domain
from nodeagent.core.plan.layers import is_leftover
from nodeagent.core.plan.policy import Verdict
from nodeagent.core.plan.registries import DROPINS, REGISTRIES_CONF, dropins, registries_rule
from nodeagent.core.plan.sides import Sides
from nodeagent.core.validate import registries_conf
from nodeagent.errors import Problem

RULE: Final = "Reload crio.service; before it a Drain, unless only pulls by digest are affected"


class RegistriesDomain(Domain):
    """The comparison of both sides decides whether a node is drained before the runtime reloads."""

    def reads(self, _sides: Sides) -> Collection[str]:
        return (REGISTRIES_CONF, f"{DROPINS}/")

    def actions(self, change: Change, sides: Sides) -> Verdict:
        return registries_rule(change, sides)

    def warnings(self, sides: Sides) -> Iterator[Problem]:
        for path in dropins(sides.after):
            if is_leftover(path):
                yield Problem(path, "is read by CRI-O, which reads every file of the directory that ends in .conf")


DOMAIN: Final = RegistriesDomain(
    name="registries",
    title="container registries and mirrors",
    files={REGISTRIES_CONF: ByContent(RULE), DROPINS: ByContent(RULE)},
    contents={
        REGISTRIES_CONF: registries_conf.check,
        f"{DROPINS}/*.conf": registries_conf.check_dropin,
    },
    # A registry in one file and its mirror in another one are changed together.
    joined=(),
    fix=True,
)
