"""Which packages an extension or a kernel type means. The names are those of the machine-config-operator on RHCOS."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nodeagent.core.config.machineconfig import MachineConfig

__all__ = ["EXTENSIONS", "KERNELS", "NOT_IN_EACH_IMAGE", "packages_of", "replaced_of"]

EXTENSIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "two-node-ha": ("pacemaker", "pcs", "fence-agents-all"),
        "ipsec": ("NetworkManager-libreswan", "libreswan"),
        "usbguard": ("usbguard",),
        "kerberos": ("krb5-workstation", "libkadm5"),
        "kernel-devel": ("kernel-devel", "kernel-headers"),
        "sandboxed-containers": ("kata-containers",),
        "sysstat": ("sysstat",),
    }
)
"""An extension that is not listed is a package of its own name: FCOS has no list, and a host says itself what it
cannot find."""

_PARTS = ("core", "modules", "modules-core", "modules-extra")

KERNELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "default": (),
        "realtime": ("kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra", "kernel-rt-kvm"),
        "64k-pages": tuple(f"kernel-64k-{part}" for part in _PARTS),
    }
)

IMAGE_KERNEL = "kernel-core"
"""The package of the image that the kernel itself is in: while it is there, no other kernel boots."""

NOT_IN_EACH_IMAGE = frozenset({"kernel", *(f"kernel-{part}" for part in _PARTS)}) - {IMAGE_KERNEL}
"""What belongs to it where it is: RHEL before 9.2 has no kernel-modules-core, Fedora CoreOS no kernel-modules-extra."""


def packages_of(config: MachineConfig) -> frozenset[str]:
    """Everything to be layered on the image."""
    extensions = [package for name in config.extensions for package in EXTENSIONS.get(name, (name,))]
    return frozenset((*extensions, *KERNELS.get(config.kernel_type, ())))


def replaced_of(config: MachineConfig) -> frozenset[str]:
    """Packages of the image that have to make room for another kernel, as far as they are there."""
    return frozenset() if config.kernel_type == "default" else NOT_IN_EACH_IMAGE | {IMAGE_KERNEL}
