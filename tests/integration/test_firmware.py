# SPDX-License-Identifier: Apache-2.0
"""The parts of a machine with Secure Boot that can be seen without starting it."""

from __future__ import annotations

from pathlib import Path

from integration.hosts.vm.qemu import Firmware, Hardware, Kernel, arguments

HARDWARE = Hardware("kvm", Path("/disk"), Path("/media"))
FIRMWARE = Firmware(Path("/code"), Path("/variables"), Path("/esp"))


def test_a_firmware_starts_its_own_disk_and_the_others_keep_their_names() -> None:
    argv = arguments(HARDWARE, Kernel(Path("/esp"), None, "", FIRMWARE))
    assert "-kernel" not in argv
    assert any("if=pflash" in each and each.endswith("/code") and "readonly=on" in each for each in argv)
    disks = [each.split("drive=")[1].split(",")[0] for each in argv if each.startswith("virtio-blk-pci")]
    assert disks == ["disk", "media", "esp"]
    assert [each for each in argv if "bootindex" in each] == [argv[-1]]


def test_a_machine_without_one_is_as_before() -> None:
    argv = arguments(HARDWARE, Kernel(Path("/vmlinuz"), Path("/initrd"), "quiet"))
    assert argv[argv.index("-kernel") + 1 :][:5] == ["/vmlinuz", "-initrd", "/initrd", "-append", "quiet"]
    assert "smm=on" not in " ".join(argv)
    assert "esp" not in " ".join(argv)
