# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class BootcReason(ReasonEnum):
    # fmt: off
    NO_PULLER = "NoPuller", Kind.UNRECONCILABLE, "build bootc into the image (it brings ostree container), or remove the OS from the config", "The config changes the OS, and the host lacks the program that pulls images."
    IMAGE_NEEDED = "ImageNeeded", Kind.UNRECONCILABLE, "name a container image by digest in osImageURL", "The config names a commit of an ostree remote, on a host that is updated by images."
    PULL_STALLED = "PullStalled", Kind.RETRY, "the agent ended the pull and retries; check the registry, its mirror or proxy, and the link", "The pull of an image received nothing and did nothing for too long."
    SYSROOT_BUSY = "SysrootBusy", Kind.REFUSED, "lsof /ostree/lock shows the program that has the lock; the agent retries", "Another program has held the lock of the deployments for too long."
    NO_LAYERING = "NoLayering", Kind.UNRECONCILABLE, "build the packages into the image, and remove extensions and kernelType from the config", "The config has packages or a kernel that only layering can add, which bootc hosts do not have."
    HAS_LAYERS = "HasLayers", Kind.UNRECONCILABLE, "build the packages into an image and change to it with bootc switch, which drops the layers of rpm-ostree", "The booted OS has packages, overrides or an initramfs of rpm-ostree, which an update by image would lose."
    BOUND_IMAGES = "BoundImages", Kind.FAULT, "remove usr/lib/bootc/bound-images.d from the image: bootc alone pulls them; the config can have their units", "The image names container images that bootc pulls beside it, and nodeagent does not."
    BOOTC_HOST = "BootcHost", Kind.UNRECONCILABLE, "change the image with bootc, and remove the OS from the config: hosts without ostree are not served", "The host was booted by bootc's own back end, without ostree, and the config changes the OS."
    REBOOT_ANNOUNCED = "RebootAnnounced", Kind.REFUSED, "kured reboots this host because of it; if ostree admin status shows no other OS to boot, remove the file", "Another program, mostly bootc, wrote /run/reboot-required, on which kured and others reboot a host."
    # fmt: on
