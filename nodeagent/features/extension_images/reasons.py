# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class ExtensionImageReason(ReasonEnum):
    # fmt: off
    EXTENSION_UNREACHABLE = "ExtensionUnreachable", Kind.UNREACHABLE, "check the address of the image from this host with curl -I; the update goes on when the server has it", "The server of an extension image does not answer, or does not have it, so the update waits."
    EXTENSION_DIGEST = "ExtensionDigest", Kind.REJECTED, "correct verification.hash, or what the server has under that address; then apply the config again", "The server has another content under the address of an extension image than the hash of the config."
    EXTENSION_TOO_LARGE = "ExtensionTooLarge", Kind.REFUSED, "raise extension_images.max_bytes, or use a smaller image; the update waits for that", "An extension image is larger than the settings allow."
    EXTENSION_NO_SPACE = "ExtensionNoSpace", Kind.REFUSED, "free space in /var; the update goes on when the image fits", "The file system of /var/lib/nodeagent-fetched has no room for an extension image."
    EXTENSION_NOT_FETCHED = "ExtensionNotFetched", Kind.REFUSED, "check extension_images.ca and the permissions of /var/lib/nodeagent-fetched; the update waits for that", "An extension image cannot be fetched or kept because of something on this host."
    EXTENSION_UNFIT = "ExtensionUnfit", Kind.REJECTED, "use the image that is built for this OS and architecture; then apply the config again", "An extension image is for another OS or another architecture, so systemd-sysext would not merge it. Nothing was changed."
    EXTENSION_NOT_MERGED = "ExtensionNotMerged", Kind.REFUSED, "journalctl -u systemd-sysext says why: extension-release must fit os-release and the name of the file", "systemd-sysext ran and did not merge an extension image of the config."
    # fmt: on
