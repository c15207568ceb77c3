# SPDX-License-Identifier: Apache-2.0
"""``BootupdBootloader`` against a manager on a private bus, and a root with the variables of a firmware."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dbus_next import Variant

from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import Refused, ServiceUnavailable
from nodeagent.features.bootloader.boot_chain import MAX_PARTS
from nodeagent.features.bootloader.bootupd import UNIT, BootupdBootloader, BootupdTiming
from nodeagent.features.bootloader.decide.check import MAX_JSON, BootloaderCheck, BootloaderUpdate, decide
from nodeagent.features.bootloader.guard import Bootloader
from nodeagent.host.dbus.client import Bus
from tests.features.bootloader.test_check import NEW, OLD, PRINTED
from tests.host.fake_systemd import FakeSystemd
from tests.support.fixtures import PrivateBus
from tests.support.signed_image import certificate, image, shim, signature, signature_list, variable

pytestmark = pytest.mark.usefixtures("no_leaked_fds")

STAGED = Deployment("os-abc.1", "abc", "os", staged=True, locked=True)
EFI = "sys/firmware/efi"
SECURE_BOOT = f"{EFI}/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
DB = f"{EFI}/efivars/db-d719b2cb-3d3a-4596-a3bc-dad00e67656f"
MOK = f"{EFI}/efivars/MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23"
MOK_WHOLE = f"{EFI}/mok-variables/MokListRT"
MOK_STATE = f"{EFI}/efivars/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"
SBAT = f"{EFI}/efivars/SbatLevelRT-605dab50-e046-4300-abb6-3dd810dd8b23"
SHIM = "usr/lib/efi/shim/16.1-3/EFI/vendor/shimx64.efi"
OLD_CA, NEW_CA = certificate("Old CA"), certificate("New CA")


def mok(number: int) -> str:
    """The variable with a further part of a list that is too large for one."""
    return MOK.replace("MokListRT", f"MokListRT{number}")


class HostRoot:
    """A root with a booted OS and a staged one, both with bootupd."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = root / "ostree/deploy/os/deploy/abc.1"
        self.write("usr/bin/bootupctl", b"")
        self.stage("usr/bin/bootupctl", b"")
        self.stage("usr/lib/bootupd/updates/EFI.json", json.dumps(NEW).encode())
        self.stage("usr/lib/bootupd/updates/BIOS.json", json.dumps(NEW).encode())
        self.stage("usr/lib/bootupd/updates/EFI/vendor/BOOTX64.CSV", b"payload")
        self.write("usr/lib/modules/1/vmlinuz", image([signature("Old CA")]))
        self.stage("usr/lib/modules/2/vmlinuz", image([signature("New CA")]))
        self.stage(SHIM, shim(NEW_CA))
        self.write(SECURE_BOOT, variable(b"\1"))
        self.write(DB, variable(signature_list(certificate("Microsoft"))))
        self.write(MOK, variable(signature_list(OLD_CA)))

    def write(self, path: str, data: bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(data)

    def stage(self, path: str, data: bytes) -> None:
        self.write(str((self.tree / path).relative_to(self.root)), data)


@pytest.fixture
async def manager(private_bus: PrivateBus) -> AsyncIterator[FakeSystemd]:
    manager = FakeSystemd()
    await manager.start(private_bus.address)
    yield manager
    await manager.stop()


@pytest.fixture
def host(tmp_path: Path) -> HostRoot:
    return HostRoot(tmp_path / "root")


@pytest.fixture
def port(private_bus: PrivateBus, manager: FakeSystemd, host: HostRoot, tmp_path: Path) -> Bootloader:
    prints(manager, (PRINTED / "older.json").read_bytes())
    timing = BootupdTiming(status=20, update=20, stop=1, poll=0.01)
    return BootupdBootloader(lambda: Bus(private_bus.address), root=host.root, runtime=tmp_path / "run", timing=timing)


def prints(manager: FakeSystemd, output: bytes, result: str = "done") -> None:
    """Let each unit print this, where its standard output is a file."""

    async def run(job: int, unit: str) -> None:
        target = manager.transient_properties[-1].get("StandardOutputFile")
        if target is not None:
            await asyncio.to_thread(Path(target).write_bytes, output)
        await manager.finish(job, unit, result)

    manager.job_script = run


async def check(port: Bootloader, staged: Deployment | None = STAGED) -> BootloaderCheck:
    found = await port.check(staged)
    assert found is not None
    return found


async def test_an_older_one_that_refuses_the_kernel(port: Bootloader, manager: FakeSystemd, host: HostRoot) -> None:
    assert await check(port) == BootloaderCheck(
        "EFI",
        "older",
        OLD["version"],
        NEW["version"],
        True,
        "refused",
        "accepted",  # type: ignore[arg-type]
    )
    ((unit, command),) = manager.transient
    (properties,) = manager.transient_properties
    assert unit.startswith("nodeagent-run-")
    assert command == ["/usr/bin/bootupctl", "status", "--json"]
    assert properties["RootDirectory"] == str(host.tree)
    assert [mount[1] for mount in properties["BindPaths"]] == [
        "/boot",
        "/dev",
        "/run/ostree-booted",
        "/run/udev",
        "/sys",
        "/sysroot",
    ]
    assert (properties["LimitFSIZE"], properties["PrivateNetwork"]) == (MAX_JSON, True)
    assert not Path(properties["StandardOutputFile"]).exists()


def status_of(installed: object, update: object) -> bytes:
    entry = {"installed": installed, "interrupted": None, "update": update, "updatable": "x", "adopted-from": None}
    return json.dumps({"components": {"EFI": entry}, "adoptable": {}}).encode()


async def test_after_the_boot_it_runs_in_the_os_itself(port: Bootloader, manager: FakeSystemd, host: HostRoot) -> None:
    host.write("usr/lib/bootupd/updates/EFI.json", json.dumps(OLD).encode())
    prints(manager, status_of(OLD, OLD))
    found = await check(port, None)
    assert (found.state, found.kernel) == ("same", "accepted")
    assert not {"RootDirectory", "BindPaths"} & manager.transient_properties[0].keys()


async def test_a_bootloader_that_the_host_does_not_use_is_not_compared(
    port: Bootloader, manager: FakeSystemd, host: HostRoot
) -> None:
    """The tree brings two, and bootupd reports the one that it would install."""
    other = {"name": "systemd-boot", "rpm_evr": "260-1"}
    both = {**NEW, "version": f"{NEW['version']},systemd-boot-260-1", "versions": [*NEW["versions"], other]}
    host.stage("usr/lib/bootupd/updates/EFI.json", json.dumps(both).encode())
    prints(manager, status_of(NEW, NEW))
    found = await check(port)
    assert (found.state, found.available) == ("same", NEW["version"])
    # bootupd 0.2 reports the metadata as they are.
    prints(manager, status_of(NEW, both))
    assert (await check(port)).state == "older"


async def test_a_host_without_bootupd_has_no_answer(port: Bootloader, manager: FakeSystemd, host: HostRoot) -> None:
    (host.root / "usr/bin/bootupctl").unlink()
    assert await port.check(STAGED) is None
    assert manager.transient == []


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (b"", "bootupctl status: "),
        (b"error: EOF", "bootupctl status: "),
        ((PRINTED / "container.json").read_bytes(), "Expected `object`, got `array`"),
        (b"[" * 200_000, "bootupctl status: "),
        (b" " * (MAX_JSON + 1), f"has more than {MAX_JSON} bytes"),
        ((PRINTED / "adoptable.json").read_bytes(), "EFI is not managed by bootupd, which could take it over"),
        (b'{"components":{},"adoptable":{}}', "EFI is not managed by bootupd"),
    ],
)
async def test_what_is_not_known(port: Bootloader, manager: FakeSystemd, output: bytes, words: str) -> None:
    prints(manager, output)
    found = await check(port)
    assert found.state == "unknown"
    assert words in found.why
    assert found.kernel == "refused", "that is known without bootupd"


async def test_a_status_that_fails_is_unknown(port: Bootloader, manager: FakeSystemd) -> None:
    manager.properties["ExecMainStatus"] = Variant("i", 1)
    prints(manager, b"", "failed")
    assert "/usr/bin/bootupctl status --json: failed, exit status 1" in (await check(port)).why


@pytest.mark.parametrize("payload", [None, b"{", b"x" * (MAX_JSON + 1), "link"])
async def test_a_payload_that_cannot_be_read_is_unknown(port: Bootloader, host: HostRoot, payload: Any) -> None:
    path = host.tree / "usr/lib/bootupd/updates/EFI.json"
    path.unlink()
    if payload == "link":
        host.write("outside.json", json.dumps(NEW).encode())
        path.symlink_to(host.root / "outside.json")
    elif payload is not None:
        path.write_bytes(payload)
    found = await check(port)
    assert (found.state, bool(found.why), found.available) == ("unknown", True, "")


FIFO = object()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({SECURE_BOOT: variable(b"\0")}, (False, "accepted")),
        ({MOK_STATE: variable(b"\1")}, (False, "accepted")),
        ({SECURE_BOOT: None}, (None, "unknown")),
        ({DB: None}, (True, "unknown")),
        ({DB: variable(b"nonsense")}, (True, "unknown")),
        ({MOK: None}, (True, "unknown")),
        ({MOK: variable(signature_list(OLD_CA, NEW_CA))}, (True, "accepted")),
        ({MOK_WHOLE: signature_list(OLD_CA, NEW_CA)}, (True, "accepted")),
        # As the kernel shows it to a program without CAP_SYS_ADMIN.
        ({MOK_WHOLE: b""}, (True, "refused")),
        ({MOK_WHOLE: b"", MOK: variable(signature_list(OLD_CA, NEW_CA))}, (True, "accepted")),
        ({MOK_WHOLE: b"", mok(1): variable(signature_list(NEW_CA))}, (True, "accepted")),
        ({MOK_WHOLE: b"", mok(2): variable(signature_list(NEW_CA))}, (True, "refused")),
        ({MOK_WHOLE: b"", MOK: None}, (True, "unknown")),
        ({mok(number): variable(signature_list(NEW_CA)) for number in range(1, MAX_PARTS)}, (True, "unknown")),
        ({"ostree/deploy/os/deploy/abc.1/usr/lib/modules/2/vmlinuz": b"no PE"}, (True, "unknown")),
        ({"ostree/deploy/os/deploy/abc.1/usr/lib/modules/2/vmlinuz": b""}, (True, "unknown")),
        ({"ostree/deploy/os/deploy/abc.1/usr/lib/modules/2/vmlinuz": FIFO}, (True, "unknown")),
        ({"ostree/deploy/os/deploy/abc.1/usr/lib/modules/3/vmlinuz": image()}, (True, "unknown")),
        ({"ostree/deploy/os/deploy/abc.1/usr/lib/modules/2/vmlinuz": image()}, (True, "refused")),
    ],
)
async def test_what_the_firmware_and_the_kernels_say(
    port: Bootloader, host: HostRoot, files: dict[str, Any], expected: tuple[bool | None, str]
) -> None:
    for path, data in files.items():
        if data is None or data is FIFO:
            (host.root / path).unlink()
        if data is FIFO:
            os.mkfifo(host.root / path)
        elif data is not None:
            host.write(path, data)
    found = await check(port)
    assert (found.secure_boot, found.kernel) == expected


@pytest.mark.parametrize(
    ("level", "kernel", "revoked"),
    [
        (b"sbat,1,2024\nlinux,2\n", b"sbat,1\nlinux,1\n", "linux"),
        (b"sbat,1,2024\nlinux,1\n", b"sbat,1\nlinux,1\n", ""),
        (b"nonsense", b"sbat,1\nlinux,1\n", ""),
        (b"sbat,1,2024\nlinux,2\n", None, ""),
        (b"sbat,1,2024\nlinux,2\n", b"nonsense", ""),
    ],
)
async def test_a_kernel_whose_generation_is_revoked(
    port: Bootloader, manager: FakeSystemd, host: HostRoot, level: bytes, kernel: bytes | None, revoked: str
) -> None:
    host.write(SBAT, variable(level))
    sections = {} if kernel is None else {".sbat": kernel}
    host.stage("usr/lib/modules/2/vmlinuz", image([signature("Old CA")], sections=sections))
    found = await check(port)
    assert (found.revoked, found.kernel) == (revoked, "refused" if revoked else "accepted")
    if revoked:
        decision = decide(found, BootloaderUpdate.BEFORE_REBOOT, bios=False)
        assert (decision.step, decision.reason) == ("refuse", "BootloaderTooOld")
        assert "a revoked generation of linux" in decision.message
    host.write(SECURE_BOOT, variable(b"\0"))
    found = await check(port)
    assert (found.revoked, found.kernel) == ("", "accepted")


async def test_bios_has_no_secure_boot(port: Bootloader, host: HostRoot, tmp_path: Path) -> None:
    (host.root / EFI).rename(tmp_path / "gone")
    found = await check(port)
    assert (found.component, found.secure_boot, found.kernel) == ("BIOS", False, "accepted")


@pytest.mark.parametrize(
    ("path", "data", "words"),
    [
        (SHIM, shim(NEW_CA, signed_by="Microsoft 2023"), "no certificate for the signature of its shim"),
        (SHIM, shim(NEW_CA, sbat="sbat,1\nshim,3\n"), "its shim has a revoked generation of shim"),
        (
            "usr/lib/efi/grub2/2/EFI/vendor/grubx64.efi",
            image(sections={".sbat": b"sbat,1\ngrub,2\n"}),
            "its GRUB has a revoked generation of grub",
        ),
        (SHIM, b"damaged", ""),
    ],
)
async def test_what_the_firmware_would_refuse(
    port: Bootloader, host: HostRoot, path: str, data: bytes, words: str
) -> None:
    host.write(SBAT, variable(b"sbat,1,2024010900\nshim,4\ngrub,3\n"))
    host.stage(path, data)
    unfit = (await check(port)).unfit
    assert words in unfit if words else unfit == ""


async def test_an_update_of_efi_alone(port: Bootloader, manager: FakeSystemd, host: HostRoot, tmp_path: Path) -> None:
    seen: list[list[str]] = []

    async def run(job: int, unit: str) -> None:
        mounts = manager.transient_properties[-1]["BindReadOnlyPaths"]
        made = Path(mounts[0][0])
        seen.append(await asyncio.to_thread(lambda: sorted(str(each.relative_to(made)) for each in made.rglob("*"))))
        await manager.finish(job, unit, "done")

    manager.job_script = run
    await port.update(STAGED, bios=False)
    ((unit, command),) = manager.transient
    assert (unit, command) == (UNIT, ["/usr/bin/bootupctl", "update"])
    (properties,) = manager.transient_properties
    updates = "/usr/lib/bootupd/updates"
    assert [mount[1] for mount in properties["BindReadOnlyPaths"]] == [updates]
    payload = host.tree / updates[1:] / "EFI"
    assert seen == [sorted(["EFI", "EFI.json", *(f"EFI/{each.relative_to(payload)}" for each in payload.rglob("*"))])]
    assert properties["TimeoutStartUSec"] == 20_000_000
    assert not (tmp_path / "run/bootloader").exists()


async def test_an_update_with_the_boot_sectors(port: Bootloader, manager: FakeSystemd) -> None:
    await port.update(STAGED, bios=True)
    assert "BindReadOnlyPaths" not in manager.transient_properties[0]


async def test_an_update_that_fails(port: Bootloader, manager: FakeSystemd) -> None:
    manager.properties["ExecMainStatus"] = Variant("i", 1)
    prints(manager, b"", "failed")
    with pytest.raises(Refused, match=f"failed, exit status 1; see journalctl -u {UNIT}") as caught:
        await port.update(STAGED, bios=False)
    assert caught.value.reason == "BootloaderUpdateFailed"


async def test_an_update_that_a_killed_agent_left_is_awaited(port: Bootloader, manager: FakeSystemd) -> None:
    manager.loaded_names = [UNIT] * 3
    await port.update(STAGED, bios=False)
    assert [unit for unit, _ in manager.transient] == [UNIT]


async def test_one_that_never_ends_is_given_up(
    private_bus: PrivateBus, manager: FakeSystemd, host: HostRoot, tmp_path: Path
) -> None:
    manager.loaded_names = [UNIT] * 10_000
    timing = BootupdTiming(update=0.05, stop=0.05, poll=0.01)
    port = BootupdBootloader(lambda: Bus(private_bus.address), root=host.root, runtime=tmp_path / "run", timing=timing)
    with pytest.raises(Refused) as caught:
        await port.update(STAGED, bios=False)
    assert caught.value.reason == "BootloaderUpdateFailed"


async def test_an_os_without_bootupctl_updates_nothing(port: Bootloader, manager: FakeSystemd, host: HostRoot) -> None:
    (host.tree / "usr/bin/bootupctl").unlink()
    with pytest.raises(Refused, match="no /usr/bin/bootupctl"):
        await port.update(STAGED, bios=False)
    assert manager.transient == []


async def test_without_systemd_nothing_is_known_yet(port: Bootloader, manager: FakeSystemd) -> None:
    await manager.stop()
    with pytest.raises(ServiceUnavailable):
        await port.check(replace(STAGED))
    with pytest.raises(ServiceUnavailable):
        await port.update(STAGED, bios=False)
