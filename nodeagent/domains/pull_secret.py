"""Credentials for registries. kubelet and CRI-O read the file at every pull, so nothing is restarted for it."""

from __future__ import annotations

from typing import Final

from nodeagent.core.domain import Domain
from nodeagent.core.policy import NONE
from nodeagent.core.validate import pull_secret

__all__ = ["DOMAIN"]

KUBELET_AUTH: Final = "/var/lib/kubelet/config.json"

DOMAIN: Final = Domain(
    name="pull-secret",
    title="registry credentials",
    files={KUBELET_AUTH: (NONE,)},
    validate={
        KUBELET_AUTH: pull_secret.check,
        "/etc/ostree/auth.json": pull_secret.check,  # the same format, read by rpm-ostree
    },
)
