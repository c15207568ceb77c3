"""Credentials for registries. kubelet and CRI-O read the file at each pull, so no service restarts for it."""

from __future__ import annotations

from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.policy import NONE
from nodeagent.core.validate import pull_secret

KUBELET_AUTH: Final = "/var/lib/kubelet/config.json"
OSTREE_AUTH: Final = "/etc/ostree/auth.json"

DOMAIN: Final = Domain(
    name="pull-secret",
    title="registry credentials",
    files={KUBELET_AUTH: (NONE,)},
    contents={
        KUBELET_AUTH: pull_secret.check,
        # The same format, read by rpm-ostree.
        OSTREE_AUTH: pull_secret.check,
    },
    fix=True,
)


def credentials_of(config: MachineConfig) -> bytes | None:
    """Return the credentials for the OS image of this config, None if it has none.

    Credentials for the OS take precedence over those for pods.
    """
    for path in (OSTREE_AUTH, KUBELET_AUTH):
        if path in config.files:
            return config.files[path].content
    return None
