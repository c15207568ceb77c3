"""kubelet and its credential providers. Its other files are unlisted, so they need a reboot."""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.domain import Domain, HttpHealth
from nodeagent.core.plan.policy import DAEMON_RELOAD, restart
from nodeagent.core.validate import kubelet_conf

__all__ = ["DOMAIN"]

KUBELET: Final = "kubelet.service"

DOMAIN: Final = Domain(
    name="kubelet",
    title="kubelet and its credential providers",
    files={
        "/etc/kubernetes/credential-providers": (restart(KUBELET),),
        f"/etc/systemd/system/{KUBELET}.d/40-kubelet-crio-image-credential-provider.conf": (
            DAEMON_RELOAD,
            restart(KUBELET),
        ),
    },
    validate={
        "/etc/kubernetes/kubelet.conf": kubelet_conf.check,
        "/etc/kubernetes/kubelet.conf.d/*.conf": kubelet_conf.check,
        "/var/lib/kubelet/config.yaml": kubelet_conf.check,  # the path that kubeadm uses
    },
    health=(HttpHealth(KUBELET, "http://127.0.0.1:10248/healthz"),),
)
