"""Logins: SSH keys of users, which sshd reads at each login, and the configuration of sshd.

The configuration is unlisted, as in the machine-config-operator. It is checked all the same: after the reboot that it
needs, an invalid one would lock all users out.
"""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.domain import Checker, Domain
from nodeagent.core.plan.policy import NONE

DOMAIN: Final = Domain(
    name="sshd",
    title="ssh keys, passwords and the ssh server",
    sshkey=(NONE,),
    checkers={
        "/etc/ssh/sshd_config": Checker.SSHD,
        "/etc/ssh/sshd_config.d/*.conf": Checker.SSHD,
    },
)
