# SPDX-License-Identifier: Apache-2.0
"""The domains that are tables only: actions by path, checks of contents, and programs that check files."""

from __future__ import annotations

from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import UNIT_TYPES
from nodeagent.core.plan.change import Change
from nodeagent.core.plan.domain import ByContent, Checker, Domain
from nodeagent.core.plan.policy import DAEMON_RELOAD, NONE, Verdict, restart
from nodeagent.core.plan.sides import Sides
from nodeagent.core.validate import pem, pull_secret

ANCHORS: Final = "/etc/pki/ca-trust/source/anchors"
# The authority of the clients of the kubelet, on OpenShift.
KUBELET_CLIENTS: Final = "/etc/kubernetes/kubelet-ca.crt"
UPDATE_TRUST: Final = restart("coreos-update-ca-trust.service")

CA_TRUST: Final = Domain(
    name="trusted certificate authorities",
    files={
        # The order matters: the runtime reads the store that the first service builds.
        f"{ANCHORS}/openshift-config-user-ca-bundle.crt": (UPDATE_TRUST, restart("crio.service")),
        f"{ANCHORS}/iri-root-ca.crt": (UPDATE_TRUST,),
        # The kubelet watches its clientCAFile.
        KUBELET_CLIENTS: (NONE,),
    },
    contents={f"{ANCHORS}/": pem.check, KUBELET_CLIENTS: pem.check},
    fix=True,
)

IRI_UNIT: Final = "iri-registry.service"

IRI_REGISTRY: Final = Domain(
    name="the registry of the internal release image",
    files={
        "/etc/iri-registry": (restart(IRI_UNIT),),
        "/usr/local/bin/load-registry-image.sh": (restart(IRI_UNIT),),
    },
    units={IRI_UNIT: (DAEMON_RELOAD, restart(IRI_UNIT))},
    joined=(IRI_UNIT,),
)

# The service of nmstate applies it at boot.
NETWORK: Final = Domain(
    name="nmstate network configuration",
    files={"/etc/nmstate/openshift": (NONE,)},
)


class OsImageDomain(Domain):
    """The fields of an OS deployment, which change with a reboot only.

    The image of the extensions changes with each release of the OS. It is read when packages are layered: with another
    image of the OS, other extensions or another kernel type, which have their own entries.
    """

    def actions(self, _change: Change, _sides: Sides) -> Verdict:
        return Verdict((NONE,), "its packages are used by the next change of the OS, the extensions or the kernel type")


OS_IMAGE: Final = OsImageDomain(
    name="the OS deployment",
    fields={
        "baseOSExtensionsContainerImage": ByContent(
            "None: it is read with the next change of the OS, the extensions or the kernel type"
        ),
    },
)

KUBELET_AUTH: Final = "/var/lib/kubelet/config.json"
OSTREE_AUTH: Final = "/etc/ostree/auth.json"

# kubelet and CRI-O read the file at each pull, so no service restarts for it. rpm-ostree reads the same format.
PULL_SECRET: Final = Domain(
    name="registry credentials",
    files={KUBELET_AUTH: (NONE,)},
    contents={KUBELET_AUTH: pull_secret.check, OSTREE_AUTH: pull_secret.check},
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


# Keys of users are read by sshd at each login. Its configuration is unlisted, as in the machine-config-operator. It is
# checked all the same: after the reboot that it needs, an invalid one would lock all users out.
SSHD: Final = Domain(
    name="ssh keys, passwords and the ssh server",
    sshkey=(NONE,),
    checkers={"/etc/ssh/sshd_config": Checker.SSHD, "/etc/ssh/sshd_config.d/*.conf": Checker.SSHD},
)

# One syntax error in any file makes sudo refuse all users.
SUDOERS: Final = Domain(
    name="sudo rules",
    checkers={"/etc/sudoers": Checker.VISUDO, "/etc/sudoers.d/": Checker.VISUDO},
)

UNIT_PATHS: Final = (*(f"{UNIT_DIR}/*.{kind}" for kind in UNIT_TYPES), f"{UNIT_DIR}/*.d/*.conf")
