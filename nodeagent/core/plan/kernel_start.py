# SPDX-License-Identifier: Apache-2.0
"""What only the start of a kernel applies, and a soft reboot, which starts all services again, does not.

A soft reboot keeps the kernel, its modules, its settings, its devices and /run. So it proves nothing about an entry
that only the start of a kernel, or of the initramfs, reads: an entry in the table below needs a full reboot. An entry
that removes a setting counts as well, because the running kernel keeps the removed value. The same table applies to the
files that a new OS changes.
"""

from __future__ import annotations

from typing import Final

from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import template_of
from nodeagent.core.plan.change import USERSPACE, Change

# Directories from which systemd and kmod read fragments, below each of _ROOTS.
_FRAGMENTS: Final = {
    "modprobe.d": "options of kernel modules",
    "depmod.d": "kernel modules",
    "modules-load.d": "kernel modules",
    "sysctl.d": "kernel settings",
    "udev": "rules for devices",
    "tmpfiles.d": "files that are made at boot",
    "binfmt.d": "binary formats of the kernel",
}
_ROOTS: Final = ("/etc", "/run", "/usr/local/lib", "/usr/lib")

# A file or a directory, with all that is below it.
_PATHS: Final = {
    **{f"{root}/{name}": cause for root in _ROOTS for name, cause in _FRAGMENTS.items()},
    "/etc/modules": "kernel modules",
    "/usr/local/lib/modules": "kernel modules",
    "/etc/sysctl.conf": "kernel settings",
    "/etc/tuned": "kernel settings",
    "/etc/sysfs.conf": "kernel settings",
    "/etc/sysfs.d": "kernel settings",
    # ``auditctl -e 2`` locks the rules until the kernel starts again.
    "/etc/audit": "audit rules, which the kernel may have locked",
    "/etc/nftables": "packet filters of the kernel",
    "/etc/nftables.conf": "packet filters of the kernel",
    "/etc/sysconfig/nftables.conf": "packet filters of the kernel",
    "/etc/sysconfig/iptables": "packet filters of the kernel",
    "/etc/sysconfig/ip6tables": "packet filters of the kernel",
    "/etc/crypttab": "encrypted devices",
    "/etc/cryptsetup-keys.d": "encrypted devices",
    "/etc/luks": "encrypted devices",
    "/etc/clevis": "encrypted devices",
    "/etc/fstab": "file systems of the boot",
    "/etc/lvm": "devices of the boot",
    "/etc/mdadm.conf": "devices of the boot",
    "/etc/mdadm": "devices of the boot",
    "/etc/multipath": "devices of the boot",
    "/etc/multipath.conf": "devices of the boot",
    "/etc/iscsi": "devices of the boot",
    "/etc/nvme": "devices of the boot",
    "/etc/dracut.conf": "the initramfs",
    "/etc/dracut.conf.d": "the initramfs",
    "/etc/initramfs-tools": "the initramfs",
    "/etc/vconsole.conf": "the initramfs",
    "/etc/kernel": "kernel arguments",
    "/etc/default/grub": "kernel arguments",
    "/etc/grub.d": "the boot loader",
    "/boot": "the boot loader",
    "/etc/ostree": "the initramfs",
    "/etc/kdump": "the crash kernel",
    "/etc/kdump.conf": "the crash kernel",
    "/etc/sysconfig/kdump": "the crash kernel",
    "/etc/selinux": "the SELinux policy, which a soft reboot does not load",
    "/etc/ima": "the integrity policy of the kernel",
    "/etc/system-fips": "FIPS mode",
    "/etc/crypto-policies": "FIPS mode",
}
# Names of interfaces are given when the kernel finds the device.
_LINKS: Final = ("/etc/systemd/network/", ".link")

# Paths of an OS tree, with all that is below them. The kernel and its initramfs are beside the modules.
TREE_PATHS: Final = {
    "usr/lib/modules": "the kernel, its modules or its initramfs",
    "usr/lib/firmware": "firmware and microcode",
    "usr/lib/ostree/prepare-root.conf": "the initramfs",
    **{path.removeprefix("/"): cause for path, cause in _PATHS.items() if path.startswith("/usr/lib/")},
    **{f"usr{path}": cause for path, cause in _PATHS.items() if path.startswith("/etc/")},
}
# The directory of an OS tree whose files with this suffix name interfaces.
LINK_DIRECTORY: Final = ("usr/lib/systemd/network", ".link")

# Units, by the name without an instance.
_UNITS: Final = {
    "systemd-modules-load.service": "kernel modules",
    "kmod-static-nodes.service": "kernel modules",
    "systemd-sysctl.service": "kernel settings",
    "tuned.service": "kernel settings",
    "systemd-udevd.service": "rules for devices",
    "systemd-udev-trigger.service": "rules for devices",
    "systemd-udev-settle.service": "rules for devices",
    "systemd-tmpfiles-setup.service": "files that are made at boot",
    "systemd-tmpfiles-setup-dev.service": "files that are made at boot",
    "systemd-tmpfiles-setup-dev-early.service": "files that are made at boot",
    "systemd-binfmt.service": "binary formats of the kernel",
    "systemd-cryptsetup@.service": "encrypted devices",
    "systemd-fsck-root.service": "file systems of the boot",
    "systemd-fsck@.service": "file systems of the boot",
    "systemd-remount-fs.service": "file systems of the boot",
    "systemd-growfs-root.service": "file systems of the boot",
    "kdump.service": "the crash kernel",
    "auditd.service": "audit rules, which the kernel may have locked",
    "multipathd.service": "devices of the boot",
    "iscsid.service": "devices of the boot",
    "-.mount": "file systems of the boot",
    "boot.mount": "file systems of the boot",
    "boot-efi.mount": "file systems of the boot",
    "etc.mount": "file systems of the boot",
    "sysroot.mount": "file systems of the boot",
    "usr.mount": "file systems of the boot",
    "var.mount": "file systems of the boot",
}
_UNIT_PREFIXES: Final = {
    "dracut-": "the initramfs",
    "initrd": "the initramfs",
    "ostree-": "the boot loader",
    "selinux-": "the SELinux policy, which a soft reboot does not load",
}


def kernel_start(change: Change) -> str:
    """Return the cause for which this change needs the start of a kernel, "" if a start of all services is enough."""
    match change.domain:
        case "file":
            return _of_path(change.key)
        case "unit":
            return _of_unit(change.key)
        case domain:
            return "" if domain in USERSPACE else "the OS"


def _of_path(path: str) -> str:
    directory, suffix = _LINKS
    if path.startswith(directory) and (path.removesuffix(".conf").endswith(suffix) or f"{suffix}.d/" in path):
        return "names of network interfaces"
    if path.startswith(f"{UNIT_DIR}/"):
        # A unit, or the directory of its drop-ins.
        return _of_unit(path.removeprefix(f"{UNIT_DIR}/").partition("/")[0].removesuffix(".d"))
    above = path
    while above:
        if cause := _PATHS.get(above):
            return cause
        above = above.rpartition("/")[0]
    return ""


def _of_unit(name: str) -> str:
    if cause := _UNITS.get(template_of(name) or name):
        return cause
    return next((cause for prefix, cause in _UNIT_PREFIXES.items() if name.startswith(prefix)), "")
