# SPDX-License-Identifier: Apache-2.0
"""bootupd itself where the other tests have a stand-in: its JSON, its errors, and its metadata of a tree.

A container has no EFI system partition, so nothing is installed and an update ends with an error of bootupd. What is
installed is a state file as bootupd writes it, in /boot.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from integration.hosts.container import real_bootupd
from integration.hosts.container.container_host import Host
from integration.hosts.container.test_bootloader import BOOTUPCTL, NEW, OLD, SCRIPT, TREE, UNIT, UPDATES, ask
from integration.hosts.errors import Unavailable

STATE = "/boot/bootupd-state.json"
SHIM = "/usr/lib/efi/shim/16.1-3/EFI/vendor/shimx64.efi"
GRUB = "/usr/lib/efi/grub2/1:2.12-41.fc44/EFI/vendor/grubx64.efi"
OTHER = "/usr/lib/efi/systemd-boot/260-1/EFI/systemd/systemd-bootx64.efi"


@pytest.fixture
def host(node: Host) -> Host:
    try:
        program = real_bootupd.BOOTUPD.find()
    except Unavailable as error:
        # Also in CI, which has no time to build it.
        pytest.skip(str(error))
    target = node.root / "usr/bin/bootupctl"
    shutil.copyfile(program, target)
    target.chmod(0o755)
    node.write("/run/bootloader.py", SCRIPT)
    node.run(["mkdir", "-p", "/run/firmware/efi/efivars"])
    node.write("/run/efi" + SHIM.removeprefix("/usr/lib/efi"), "shim")
    node.write("/run/efi" + GRUB.removeprefix("/usr/lib/efi"), "grub")
    node.run(["mkdir", "-p", UPDATES, "/usr/lib/efi", "/run/bootupd/updates", TREE])
    node.run(["mount", "--bind", "/", TREE])
    # bootupctl names its new files by /proc.
    node.run(["mount", "--bind", "/proc", f"{TREE}/proc"])
    node.run(["mount", "--bind", "/run/bootupd", f"{TREE}/usr/lib/bootupd"])
    node.run(["mount", "--bind", "/run/efi", f"{TREE}/usr/lib/efi"])
    return node


def bootupctl(host: Host, *arguments: str) -> str:
    """As in a unit of systemd, in the tree of the staged deployment."""
    return host.run(["chroot", TREE, "env", "INVOCATION_ID=1", "bootupctl", *arguments]).stdout


def installed(metadata: str) -> str:
    content = {"meta": json.loads(metadata), "filetree": {"children": {}}, "adopted-from": None}
    return json.dumps({"installed": {"EFI": content}, "pending": None, "static-configs": None})


def ordered(text: str) -> Any:
    """With the order of the keys. bootupctl prints the JSON with white space."""
    return json.loads(text, object_pairs_hook=list)


@pytest.mark.long
def test_the_stand_in_and_bootupd_agree(host: Host) -> None:
    # The metadata of a tree, from the names of its directories.
    bootupctl(host, "backend", "generate-update-metadata")
    made = host.read_text("/run/bootupd/updates/EFI.json")
    assert {**json.loads(made), "timestamp": ""} == {**json.loads(NEW), "timestamp": ""}
    host.write("/run/bootupd/updates/EFI.json", NEW)

    # Nothing is installed. On a host with /ostree/deploy, bootupd would take over what is there.
    empty = json.loads(bootupctl(host, "status", "--json"))
    assert (empty["components"], list(empty["adoptable"])) == ({}, ["EFI"])
    unknown = ask(host, "check")
    assert (unknown["state"], unknown["installed"]) == ("unknown", "")
    assert unknown["why"] == "EFI is not managed by bootupd, which could take it over"

    host.write(STATE, installed(OLD))
    host.write("/boot/state", OLD)
    host.write("/usr/bin/stand-in", BOOTUPCTL, mode=0o755)
    stand_in = host.run(["chroot", TREE, "env", "INVOCATION_ID=1", "/usr/bin/stand-in", "status"]).stdout
    assert ordered(bootupctl(host, "status", "--json")) == ordered(stand_in)
    assert bootupctl(host, "status", "--print-if-available") == "Updates available: EFI\n"
    found = ask(host, "check")
    assert (found["state"], found["why"]) == ("older", "")
    assert found["installed"] == "grub2-1:2.06-95.fc38,shim-15.6-2"
    assert found["available"] == "grub2-1:2.12-41.fc44,shim-16.1-3"

    # An error of bootupd itself, with the program's own words in the journal.
    failed = ask(host, "update")
    assert failed["reason"] == "BootloaderUpdateFailed"
    assert "exit status 1" in failed["message"]
    assert any("error: " in entry["MESSAGE"] for entry in host.journal(UNIT))
    assert host.read_text(STATE) == installed(OLD)

    # A tree with a second bootloader is not newer than what is installed of the first.
    host.write(STATE, installed(NEW))
    assert ask(host, "check")["state"] == "same"
    assert bootupctl(host, "status", "--print-if-available") == ""
    host.write("/run/efi" + OTHER.removeprefix("/usr/lib/efi"), "systemd-boot")
    bootupctl(host, "backend", "generate-update-metadata")
    both = host.read_text("/run/bootupd/updates/EFI.json")
    assert "systemd-boot-260-1" in json.loads(both)["version"]
    assert ask(host, "check")["state"] == "same"

    # Not a file of bootupd.
    host.write(STATE, "{")
    broken = ask(host, "check")
    assert (broken["state"], "bootupctl status" in broken["why"]) == ("unknown", True)
