"""The sources of images: registries.conf and its drop-ins."""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.domain import Domain, RuleEntry
from nodeagent.core.plan.registries import REGISTRIES_CONF, registries_rule
from nodeagent.core.validate import registries_conf

__all__ = ["DOMAIN"]

DOMAIN: Final = Domain(
    name="registries",
    title="container registries and mirrors",
    files={
        REGISTRIES_CONF: RuleEntry(
            registries_rule,
            "Reload crio.service; before it a Drain, unless only pulls by digest are affected",
        ),
    },
    validate={
        REGISTRIES_CONF: registries_conf.check,
        "/etc/containers/registries.conf.d/*.conf": registries_conf.check_dropin,
    },
)
