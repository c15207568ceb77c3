# SPDX-License-Identifier: Apache-2.0
"""The meaning of the error text of a failed transaction. rpm-ostreed has one error name for all failures.

Most texts are of the programs underneath (``host.ostree.failures``). Of rpm-ostree and libdnf: Packages not found,
Could not depsolve. rpm-ostree runs a program of the new tree before it reports success; if that fails, the text begins
with "Sanity-checking final rootfs".
"""

from __future__ import annotations

import re
from typing import Final

from nodeagent.core.plan.deployment import Deployment, OsTarget, unmet
from nodeagent.errors import Refused, Retryable, Terminal
from nodeagent.features.rpmostree.reasons import RpmOstreeReason
from nodeagent.host.ostree.failures import OF_AN_IMAGE, OF_THE_NETWORK, Failures
from nodeagent.reasons import Reason

# A rebase to the refspec of the first deployment. Another client staged it between reading the state and the call.
SAME_REFS = "Old and new refs are equal"

_ABSENT = re.compile(r'Package "([^"]+)" not found')
_UNKNOWN = re.compile(r"Packages not found: ([^\n]+)")

_FAILURES: Final = Failures(
    "rpm-ostree",
    (
        # First, because the output of the program of the new tree may contain each text below.
        (Terminal, Reason.IMAGE_BROKEN, r"\A\s*sanity-checking final rootfs"),
        *OF_AN_IMAGE,
        (
            Terminal,
            RpmOstreeReason.PACKAGE_UNAVAILABLE,
            r"packages? not found|no package matches|could not depsolve|package \".*\" not found"
            r"|multiple packages match|nothing provides|is already provided by|skopeo is not installed",
        ),
        *OF_THE_NETWORK,
        (
            Retryable,
            RpmOstreeReason.TRANSACTION_CANCELLED,
            r"operation was cancelled|client disconnected before calling start",
        ),
        (Retryable, Reason.SHUTTING_DOWN, r"reboot initiated, cannot start new transaction"),
        (Refused, Reason.STAGED_BY_OTHER, r"staged deployment \(remove with cleanup -p\)"),
        (Terminal, Reason.NO_ROLLBACK, r"no rollback deployment found"),
    ),
)
failure: Final = _FAILURES.failure


def incomplete(target: OsTarget, first: Deployment) -> Terminal:
    """Return the error for a success that left ``first`` as the next deployment instead of the target."""
    wrong = ", ".join(f"{domain} {what}" for domain, what in unmet(target, first).items())
    message = f"rpm-ostree reported success, but the next deployment differs: {wrong or 'none is staged'}"
    return Terminal(message, reason=Reason.STAGE_INCOMPLETE)


def absent_package(text: str) -> str:
    """Return the package that could not be removed because the base lacks it, "" for another failure."""
    absent = _ABSENT.search(text)
    return absent[1] if absent else ""


def unknown_packages(text: str) -> frozenset[str]:
    """Return the packages that could not be added because no repository has them."""
    unknown = _UNKNOWN.search(text)
    return frozenset(unknown[1].replace(",", " ").split()) if unknown else frozenset()
