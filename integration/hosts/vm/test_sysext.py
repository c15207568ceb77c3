# SPDX-License-Identifier: Apache-2.0
"""The system extension on a booted system: systemd-sysext merges the image itself, at the boot too, and one with
dm-verity only if it is signed by the right key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.image import cache_directory
from integration.hosts.vm import nodes
from integration.hosts.vm.virtual_machine import Vm
from integration.package import provisioning, signing
from integration.trees.toolbox import scratch

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

SLOW = 300.0  # seconds: megabytes through a serial port, without KVM
UNIT = "systemd-sysext.service"
IMAGE = "/var/lib/extensions/nodeagent.raw"
CERTIFICATE = "/etc/verity.d/nodeagent.crt"
# Of the extension only: the tree of the machine has the files of the tar.
ONLY = "/usr/lib/extension-release.d/extension-release.nodeagent"
# The machine has neither udev's rules nor the unit that loads these.
MODULES = "[Service]\nExecStartPre=modprobe -a loop squashfs dm-mod dm-verity\n"


@pytest.fixture(scope="session")
def raw(package: Path) -> Path:
    """The image that the build of the package left beside the tar."""
    (found,) = (cache_directory() / "dist").glob("nodeagent.raw")
    return found


@pytest.fixture(scope="module")
def signer(raw: Path) -> Iterator[signing.Signer]:
    image = provisioning.tools()
    with scratch(image) as root:
        yield signing.Signer(root, raw)
    image.close()


def put(vm: Vm, image: bytes) -> None:
    vm.run(["mkdir", "--parents", str(Path(IMAGE).parent)])
    vm.execute(["dd", f"of={IMAGE}", "bs=64K", "iflag=fullblock", "conv=fsync", "status=none"], image, timeout=SLOW)


def merge(vm: Vm) -> bool:
    """Merge the images, and return whether that succeeded."""
    vm.run(["systemctl", "daemon-reload"], timeout=SLOW)
    return vm.run(["systemctl", "restart", UNIT], check=False, timeout=SLOW).returncode == 0


def test_the_image_is_merged_at_each_boot(vm: Vm, raw: Path) -> None:
    vm.write(f"/etc/systemd/system/{UNIT}.d/10-modules.conf", MODULES)
    put(vm, raw.read_bytes())
    assert not vm.exists(ONLY)
    vm.run(["systemctl", "enable", UNIT], timeout=SLOW)
    assert merge(vm)
    assert vm.exists(ONLY)
    with vm.rebooting(nodes.WAIT):
        vm.run(["systemctl", "reboot"])
    assert vm.exists(ONLY)
    agent.wait_daemon(vm, SLOW)


def test_only_a_signed_image_is_merged(vm: Vm, signer: signing.Signer) -> None:
    vm.write(f"/etc/systemd/system/{UNIT}.d/10-modules.conf", MODULES)
    vm.write(signing.DROP_IN, signing.drop_in())
    vm.write(CERTIFICATE, (signer.directory / "cert.pem").read_text())
    image = signer.sign().read_bytes()
    put(vm, image)
    assert merge(vm)
    assert vm.exists(ONLY)
    # The kernel reads through dm-verity.
    assert "verity" in vm.run(["dmsetup", "table"]).stdout
    vm.run(["systemctl", "stop", UNIT], timeout=SLOW)
    assert not vm.exists(ONLY)

    # The certificate of another key, then an image without a signature.
    signer.run(signer.request.replace("key.pem", "other.key").replace("cert.pem", "other.pem"))
    vm.write(CERTIFICATE, (signer.directory / "other.pem").read_text())
    assert not merge(vm)
    assert not vm.exists(ONLY)
    vm.write(CERTIFICATE, (signer.directory / "cert.pem").read_text())
    put(vm, (signer.directory / "dist/nodeagent.raw").read_bytes())
    assert not merge(vm)
    assert not vm.exists(ONLY)
    put(vm, image)
    assert merge(vm)
    assert vm.exists(ONLY)
