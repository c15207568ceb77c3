# SPDX-License-Identifier: Apache-2.0
"""The packages of extensions and kernel types. The names are those of the machine-config-operator on RHCOS."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nodeagent.core.config.machineconfig import MachineConfig

# FCOS has no list of extensions. There, and for each name that is not listed, an extension is the package of that name.
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

# Packages of an extension that only newer images of the extensions have: ``ipsec`` is without the last one in the
# releases 4.x of OpenShift. They are layered where they exist.
OPTIONAL: Mapping[str, tuple[str, ...]] = MappingProxyType({"ipsec": ("openvswitch3.5-ipsec",)})

_PARTS = ("core", "modules", "modules-core", "modules-extra")

KERNELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "default": (),
        "realtime": ("kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra", "kernel-rt-kvm"),
        "64k-pages": tuple(f"kernel-64k-{part}" for part in _PARTS),
    }
)

# The package with the kernel of the image. While it is installed, no other kernel boots.
IMAGE_KERNEL = "kernel-core"

# RHEL before 9.2 has no kernel-modules-core, Fedora CoreOS has no kernel-modules-extra.
NOT_IN_EACH_IMAGE = frozenset({"kernel", *(f"kernel-{part}" for part in _PARTS)}) - {IMAGE_KERNEL}


def packages_of(config: MachineConfig) -> frozenset[str]:
    """Return the packages to layer on the image."""
    extensions = [package for name in config.extensions for package in EXTENSIONS.get(name, (name,))]
    return frozenset((*extensions, *KERNELS.get(config.kernel_type, ())))


def optional_of(config: MachineConfig) -> frozenset[str]:
    """Return the packages to layer on the image as far as they exist."""
    return frozenset(package for name in config.extensions for package in OPTIONAL.get(name, ()))


def replaced_of(config: MachineConfig) -> frozenset[str]:
    """Return the packages of the image that another kernel replaces, as far as they are installed."""
    return frozenset() if config.kernel_type == "default" else NOT_IN_EACH_IMAGE | {IMAGE_KERNEL}
