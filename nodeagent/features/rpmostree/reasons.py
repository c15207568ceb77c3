# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class RpmOstreeReason(ReasonEnum):
    # fmt: off
    BOOTC_HOST = "BootcHost", Kind.UNRECONCILABLE, "change the image with bootc, or manage the host with rpm-ostree only"
    TRANSACTION_BUSY = "TransactionBusy", Kind.REFUSED, "rpm-ostree status shows the transaction; the agent retries"
    TRANSACTION_CANCELLED = "TransactionCancelled", Kind.RETRY, "rpm-ostree cancel, or the end of rpm-ostreed, cancelled it; the agent retries"
    PACKAGE_UNAVAILABLE = "PackageUnavailable", Kind.FAULT, "correct extensions or kernelType, baseOSExtensionsContainerImage, or the repositories of the host"
    TRANSACTION_STUCK = "TransactionStuck", Kind.RETRY, "the agent cancelled it and retries; journalctl -u rpm-ostreed shows the details"
    TRANSACTION_LOST = "TransactionLost", Kind.RETRY, "rpm-ostreed died (journalctl -u rpm-ostreed); the agent retries"
    # fmt: on
