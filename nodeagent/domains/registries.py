"""The sources of images: registries.conf and its drop-ins."""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.change import Change
from nodeagent.core.plan.domain import ByContent, Domain
from nodeagent.core.plan.policy import Verdict
from nodeagent.core.plan.registries import REGISTRIES_CONF, registries_rule
from nodeagent.core.plan.sides import Sides
from nodeagent.core.validate import registries_conf

__all__ = ["DOMAIN"]


class RegistriesDomain(Domain):
    """The comparison of both sides decides whether a node is drained before the runtime reloads."""

    def actions(self, change: Change, sides: Sides) -> Verdict:
        return registries_rule(change, sides)


DOMAIN: Final = RegistriesDomain(
    name="registries",
    title="container registries and mirrors",
    files={
        REGISTRIES_CONF: ByContent(
            "Reload crio.service; before it a Drain, unless only pulls by digest are affected",
        ),
    },
    contents={
        REGISTRIES_CONF: registries_conf.check,
        "/etc/containers/registries.conf.d/*.conf": registries_conf.check_dropin,
    },
    # A registry in one file and its mirror in another one are changed together.
    joined=(),
    fix=True,
)
