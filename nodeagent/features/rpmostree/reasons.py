# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class RpmOstreeReason(ReasonEnum):
    # fmt: off
    TRANSACTION_BUSY = "TransactionBusy", Kind.REFUSED, "rpm-ostree status shows the transaction; the agent retries", "Another client uses rpm-ostree, which does one thing at a time."
    TRANSACTION_CANCELLED = "TransactionCancelled", Kind.RETRY, "rpm-ostree cancel, or the end of rpm-ostreed, cancelled it; the agent retries", "The work of rpm-ostree was cancelled by another client, or rpm-ostreed ended."
    PACKAGE_UNAVAILABLE = "PackageUnavailable", Kind.FAULT, "correct extensions or kernelType, baseOSExtensionsContainerImage, or the repositories of the host", "A package that the config needs is in no repository of this host."
    IMAGE_WITHOUT_DAEMON = "ImageWithoutDaemon", Kind.FAULT, "build the additions into the image, and drop them: extensions and kernelType, others by rpm-ostree reset", "The new image has no rpm-ostree, which alone keeps the packages, overrides or initramfs that were added on this host."
    TRANSACTION_STUCK = "TransactionStuck", Kind.RETRY, "the agent cancelled it and retries; journalctl -u rpm-ostreed shows the details", "rpm-ostree showed no progress for too long."
    TRANSACTION_LOST = "TransactionLost", Kind.RETRY, "rpm-ostreed died (journalctl -u rpm-ostreed); the agent retries", "rpm-ostreed ended during the work."
    # fmt: on
