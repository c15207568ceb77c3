# SPDX-License-Identifier: Apache-2.0
"""The bootloader through the real systemd: units in the tree of another OS, what they see, and how they end.

A container has no image-based OS, so the tree of the staged deployment is the host itself with another payload. What
runs is the adapter of the installed package, in a unit with the agent's restrictions. The stand-in for bootupctl prints
the JSON of bootupd 0.3.2, which `test_real_bootupd` compares with it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.hosts.container.container_host import Host

TREE = "/ostree/deploy/os/deploy/abc.1"
UPDATES = "/usr/lib/bootupd/updates"
UNIT = "nodeagent-bootloader.service"
OLD, NEW = (
    f'{{"timestamp":"{year}-06-01T00:00:00Z","version":"grub2-1:2.{grub},shim-{shim}",'
    f'"versions":[{{"name":"grub2","rpm_evr":"1:2.{grub}"}},{{"name":"shim","rpm_evr":"{shim}"}}],'
    '"default-bootloader":null}'
    for year, grub, shim in ((2024, "06-95.fc38", "15.6-2"), (2026, "12-41.fc44", "16.1-3"))
)
# The state is in /boot, as that of bootupd. `update` notes what it sees, and may take its time.
BOOTUPCTL = f"""#!/bin/sh
test -n "$INVOCATION_ID" || exit 9
case $1 in
status)
    test -e /boot/hang && exec sleep 4244
    test -e /boot/flood && exec head -c 100000000 /dev/zero
    test -e /sys/firmware/efi && method=EFI || method=BIOS
    printf '{{"aleph-version":null,"boot-method":"%s","components":{{"EFI":{{"installed":%s,"interrupted":null,' \\
        $method "$(cat /boot/state)"
    printf '"update":%s,' "$(cat {UPDATES}/EFI.json)"
    printf '"updatable":"upgradable","adopted-from":null}}}},"adoptable":{{}}}}' ;;
update)
    test -e /boot/fail && {{ echo "error: synthetic failpoint" >&2; exit 1; }}
    echo begin >>/boot/log
    touch {UPDATES}/x 2>/dev/null && echo writable >>/boot/log
    touch /usr/x 2>/dev/null && echo writable >>/boot/log
    ls {UPDATES} >/boot/seen; ls {UPDATES}/EFI >>/boot/seen
    while test -e /boot/slow; do sleep 0.1; done
    cp {UPDATES}/EFI.json /boot/.state && mv /boot/.state /boot/state
    echo end >>/boot/log ;;
esac
"""
SCRIPT = """
import asyncio, glob, json, sys
sys.path.extend(glob.glob("/usr/lib/nodeagent/lib/python3*/site-packages"))
from nodeagent.features.bootloader.decide.check import check_to_dict
from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import AgentError
from nodeagent.features.bootloader import boot_chain
from nodeagent.features.bootloader.bootupd import BootupdBootloader, BootupdTiming

# A machine with EFI, whatever the one below the container has.
boot_chain._EFI = "/run/firmware/efi"

async def main(do):
    port = BootupdBootloader(timing=BootupdTiming(status=4, update=60, poll=0.1))
    staged = Deployment("os-abc.1", "abc", "os", staged=True)
    if do == "update":
        await port.update(staged, bios=False)
    return check_to_dict(await port.check(staged))

try:
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
except AgentError as error:
    print(json.dumps({"reason": error.reason, "message": error.message}))
"""
# Of nodeagent.service, what could stand in the way.
LIKE_THE_AGENT = (
    "ProtectSystem=yes",
    "PrivateMounts=yes",
    "PrivateDevices=yes",
    "ProtectKernelTunables=yes",
    "NoNewPrivileges=yes",
    "RestrictNamespaces=yes",
    "SystemCallFilter=@system-service",
    "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_FSETID CAP_AUDIT_WRITE CAP_SYS_NICE",
    "UMask=0077",
)
COMMAND = (
    "systemd-run",
    "--quiet",
    "--collect",
    *(f"--property={one}" for one in LIKE_THE_AGENT),
)
PYTHON = ("/usr/lib/nodeagent/bin/python3", "-BIS", "/run/bootloader.py")


@pytest.fixture
def host(node: Host) -> Host:
    """A host with the old bootloader, and a tree with the new one."""
    node.write("/usr/bin/bootupctl", BOOTUPCTL, mode=0o755)
    node.write("/run/bootloader.py", SCRIPT)
    node.run(["mkdir", "-p", "/run/firmware/efi/efivars"])
    node.write("/boot/state", OLD)
    node.write(f"{UPDATES}/EFI.json", OLD)
    node.write("/run/new/updates/EFI.json", NEW)
    node.write("/run/new/updates/BIOS.json", NEW)
    node.write("/run/new/updates/EFI/vendor", "")
    node.run(["mkdir", "-p", TREE])
    node.run(["mount", "--bind", "/", TREE])
    node.run(["mount", "--bind", "/run/new", f"{TREE}/usr/lib/bootupd"])
    return node


def ask(host: Host, do: str) -> Any:
    return json.loads(host.run([*COMMAND, "--pipe", "--wait", *PYTHON, do], timeout=90).stdout)


def files(host: Host) -> list[str]:
    return sorted(host.run(["ls", "/run/nodeagent"]).stdout.split())


@pytest.mark.long
def test_units_in_the_tree_of_another_os(host: Host) -> None:
    before = files(host)
    found = ask(host, "check")
    assert (found["component"], found["state"]) == ("EFI", "older"), found["why"]
    assert found["installed"] == "grub2-1:2.06-95.fc38,shim-15.6-2"
    assert found["available"] == "grub2-1:2.12-41.fc44,shim-16.1-3", "of the tree, not of the host"

    host.write("/boot/fail", "")
    failed = ask(host, "update")
    assert failed["reason"] == "BootloaderUpdateFailed"
    assert "exit status 1" in failed["message"]
    assert any("synthetic failpoint" in entry["MESSAGE"] for entry in host.journal(UNIT))
    host.run(["rm", "/boot/fail"])

    # The agent is killed while bootupctl works: the next one waits for it, and none runs beside another.
    host.write("/boot/slow", "")
    host.run([*COMMAND, "--unit=killed.service", *PYTHON, "update"])
    host.wait_for(lambda: host.exists("/boot/seen"), "bootupctl works")
    host.kill("killed.service")
    host.run([*COMMAND, "--unit=next.service", *PYTHON, "update"])
    host.wait_for(lambda: host.is_active("next.service"), "the next one begins")
    host.run(["rm", "/boot/slow"])
    host.wait_for(lambda: not host.is_active("next.service"), "it ends", 180)
    assert host.read_text("/boot/log").split() == ["begin", "end", "begin", "end"], "/usr was not writable"
    assert host.read_text("/boot/seen").split() == ["EFI", "EFI.json", "vendor"], "no payload of BIOS"
    assert host.read_text("/boot/state") == NEW
    assert ask(host, "check")["state"] == "same"

    # Bounds of size and of time.
    host.write("/boot/flood", "")
    assert "bootupctl status: " in ask(host, "check")["why"]
    host.run(["mv", "/boot/flood", "/boot/hang"])
    assert "it did not end within" in ask(host, "check")["why"]
    assert host.run(["pgrep", "-f", "sleep 4244"], check=False).stdout == ""
    assert files(host) == before
    assert host.run(["systemctl", "list-units", "--all", "--no-legend", "nodeagent-[rb]*"]).stdout == ""
