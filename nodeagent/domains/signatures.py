"""The trust in images: signature policies, the location of signatures, and their keys."""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.policy import reload
from nodeagent.core.validate import signature_policy

__all__ = ["DOMAIN"]

RELOAD_CRIO: Final = (reload("crio.service"),)

DOMAIN: Final = Domain(
    name="signatures",
    title="image signature policies",
    files={
        # The controller writes keys to this directory that may change without a reboot.
        "/etc/machine-config-daemon/no-reboot/containers-gpg.pub": RELOAD_CRIO,
        "/etc/containers/policy.json": RELOAD_CRIO,
        "/etc/containers/registries.d": RELOAD_CRIO,
        "/etc/crio/policies": RELOAD_CRIO,
    },
    contents={
        "/etc/containers/policy.json": signature_policy.check,
        # One for each namespace, in the same format.
        "/etc/crio/policies/": signature_policy.check,
    },
    joined=(),
)
