# SPDX-License-Identifier: Apache-2.0
"""The additions of the tree of a virtual machine to that of a container: the harness's agent, /boot, a short boot.

Every boot is paid for by many tests, and without KVM the guest is ten times slower than this machine: what no test
looks at is masked. What is measured to matter is named; `systemd-analyze blame` in a guest finds the next candidates.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from integration.hosts import process
from integration.hosts.container.image import digest, tree_digest
from integration.hosts.sources import code
from integration.trees.tree import Part

FILES = Path(__file__).parent / "guest"
PROGRAM = "usr/libexec/nodeagent-vm/vm_agent.py"
UNITS = "usr/lib/systemd/system"
AGENT = "vm-agent.service"

# Options of the kernel. The fixes for speculative execution cost a guest without KVM a fifth of its time; so do
# self-tests of its cryptography, a slow serial console, and the wait for a keyboard that is not there.
KARGS = (
    "root=/dev/vda2",
    "rw",
    "console=ttyS0",
    "panic=-1",  # at once: QEMU then ends, and the harness says why
    *("quiet", "loglevel=3", "systemd.show_status=false", "mitigations=off", "audit=0", "lsm=", "nowatchdog"),
    *("cryptomgr.notests", "8250.nr_uarts=1", "i8042.noaux", "i8042.nokbd", "tsc=reliable", "no_timer_check"),
    *("random.trust_cpu=1", "noreplace-smp"),
)

# Not in a container's image, or masked there because a container has no use for it.
UNMASKED = ("systemd-tmpfiles-setup-dev.service",)
MASKED = (
    "blk-availability.service",
    "dm-event.socket",
    "getty@tty1.service",
    "serial-getty@ttyS0.service",
    "kmod-static-nodes.service",
    "ldconfig.service",
    "lvm2-lvmpolld.socket",
    "lvm2-monitor.service",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service",
    "systemd-machine-id-commit.service",
    "systemd-modules-load.service",
    "systemd-networkd.service",
    "systemd-pcrmachine.service",
    "systemd-pstore.service",
    "systemd-random-seed.service",
    "systemd-sysusers.service",
    "systemd-tpm2-setup.service",
    "systemd-update-done.service",
    "systemd-update-utmp.service",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "xfs_scrub_all.timer",
    "modprobe@configfs.service",
    "modprobe@drm.service",
    "modprobe@efi_pstore.service",
    "modprobe@fuse.service",
)
# Rules of udev that look at hardware which the guest has not, or start programs for what it has.
NO_RULES = (
    "50-firmware",
    "60-autosuspend",
    "60-cdrom_id",
    "60-dmi-id",
    "60-drm",
    "60-evdev",
    "60-fido-id",
    "60-infiniband",
    "60-input-id",
    "60-persistent-alsa",
    "60-persistent-input",
    "60-persistent-storage-mtd",
    "60-sensor",
    "60-persistent-storage-tape",
    "60-persistent-v4l",
    "60-serial",
    "60-tpm2-id",
    "65-integration",
    "69-lvm",
    "70-camera",
    "70-joystick",
    "70-memory",
    "70-mouse",
    "70-power-switch",
    "70-touchpad",
    "70-uaccess",
    "71-seat",
    "73-seat-late",
    "75-net-description",
    "75-probe_mtd",
    "78-sound-card",
    "80-net-setup-link",
    "81-net-dhcp",
    "90-iocost",
    "90-vconsole",
    "96-e2scrub",
    "80-drivers",
)

# Most devices of a guest are terminals and buses that no rule does anything for.
COLDPLUG = """\
[Service]
ExecStart=
ExecStart=-udevadm trigger --type=all --action=add --prioritized-subsystem=block --subsystem-match=block
"""
# systemd itself loads these at its start, if they are there.
NO_MODULES = "".join(f"blacklist {name}\n" for name in ("ip_tables", "qemu_fw_cfg", "virtio_rng", "dmi_sysfs", "vsock"))

# As Fedora CoreOS mounts it: a program that writes there remounts it in a mount namespace of its own.
BOOT_MOUNT = """\
[Unit]
Description=Boot partition
Before=local-fs.target

[Mount]
What=/dev/disk/by-label/boot
Where=/boot
Type=ext4
Options=ro,nodev,nosuid

[Install]
RequiredBy=local-fs.target
"""
MEDIA_MOUNT = """\
[Unit]
Description=Second disk, with what the tests bring

[Mount]
What=/dev/vdb
Where=/var/media
Type=ext4
Options=ro,nodev

[Install]
WantedBy=dev-vdb.device
"""


def part() -> Part:
    """Return the part that makes a tree one of a virtual machine."""
    source = digest(code(__file__), tree_digest(FILES))
    return Part("vm", source.encode(), _install)


def _install(root: Path) -> None:
    program = root / PROGRAM
    program.parent.mkdir(parents=True)
    shutil.copyfile(FILES / "vm_agent.py", program)
    shutil.copyfile(FILES / AGENT, root / UNITS / AGENT)
    (root / UNITS / "boot.mount").write_text(BOOT_MOUNT)
    (root / UNITS / "var-media.mount").write_text(MEDIA_MOUNT)
    process.run(["chroot", str(root), "systemctl", "unmask", *UNMASKED], timeout=30)
    process.run(["chroot", str(root), "systemctl", "mask", *MASKED], timeout=30)
    process.run(["chroot", str(root), "systemctl", "enable", AGENT, "boot.mount", "var-media.mount"], timeout=30)
    for path, text in {
        "etc/systemd/system/systemd-udev-trigger.service.d/10-vm.conf": COLDPLUG,
        "etc/modprobe.d/vm.conf": NO_MODULES,
    }.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    rules = root / "etc/udev/rules.d"
    rules.mkdir(parents=True, exist_ok=True)
    for name in NO_RULES:
        (rules / f"{name}.rules").symlink_to("/dev/null")
