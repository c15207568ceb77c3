# SPDX-License-Identifier: Apache-2.0
"""One run of QEMU: from power on to the guest's reboot, its power off, or the end of the power.

There is no boot loader, unless a firmware is given: QEMU loads the kernel that it is given, and ends when the guest
reboots (-no-reboot), so that the caller reads from the disk what boots next. Each flag below that looks odd was learnt
by a failure:

- `-cpu Nehalem,-cx16` without KVM: with `max`, or with cmpxchg16b, QEMU 7.2 crashes kernels in their allocator.
- `cache=unsafe`: a flush of the guest writes QEMU's own caches to the file and does not wait for the disk of this
  machine. machine.py says what that means for a power cut.
- `iothread` and `num-queues=1`: the disk can then be throttled while the guest runs as one device with one queue.
- `tsc_early_khz`: without KVM the guest's time stamp counter is that of this machine. A kernel that measures it on a
  busy machine may find an eighth of its frequency, and then all timeouts in the guest end too early.
- `pauth-impdef` for aarch64: the cipher of the architecture for signed pointers is slow to emulate. That machine has no
  `vmgenid` in QEMU 7.2.
- the rest of the machine (SATA, USB, SMBus) is off because the guest's udev would load drivers for it for seconds.
"""

from __future__ import annotations

import contextlib
import enum
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.hosts.errors import HostGone, HostRingError
from integration.hosts.vm.channel import Channel
from integration.hosts.vm.qmp import Qmp

SOCKETS_TIMEOUT = 60.0  # seconds until QEMU listens; it first reads a kernel of 40 MB, on a machine that may be busy
STATE_TIMEOUT = 300.0
PANIC = b"Kernel panic - not syncing"


@dataclass(frozen=True, slots=True)
class Platform:
    """The machine that QEMU emulates, and the way in which it does."""

    accel: str
    cpu: str
    program: str = "qemu-system-x86_64"
    machine: str = "q35,sata=off,smbus=off,vmport=off,usb=off,hpet=off"
    devices: Sequence[str] = ("-device", "vmgenid,guid=auto")
    options: str = ""  # of the kernel, with a blank before them


PLATFORMS = {
    "tcg": Platform("tcg,thread=multi", "Nehalem,-cx16"),
    "kvm": Platform("kvm", "host"),
    "aarch64": Platform(
        *("tcg,thread=multi", "max,pauth-impdef=on", "qemu-system-aarch64", "virt"),
        devices=(),
        options=" console=ttyAMA0",
    ),
}


class End(enum.Enum):
    REBOOT = "the guest rebooted"
    POWER_OFF = "the guest powered itself off"
    POWER_CUT = "the power was cut"
    CRASH = "the guest's kernel or QEMU crashed"


@dataclass(frozen=True, slots=True)
class Firmware:
    """A firmware with Secure Boot, which starts the disk ``esp``. It writes to the file of its variables."""

    code: Path
    variables: Path
    esp: Path  # raw


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel, initramfs and arguments that a boot loader would start; without an initramfs, a boot loader.

    With a ``firmware``, that one finds what to start, and the rest is for the records.
    """

    image: Path
    initrd: Path | None
    options: str
    firmware: Firmware | None = None


@dataclass(frozen=True, slots=True)
class Hardware:
    accel: str  # a key of PLATFORMS
    disk: Path  # qcow2, written to
    media: Path | None = None  # raw, read-only, never throttled: the second disk
    memory: int = 1024  # MiB
    cpus: int = 1  # without KVM a second one crashes kernels that patch their own code: one of two boots
    tpm: Path | None = None  # the control socket of a TPM 2.0 that swtpm emulates


class Qemu:
    """Runs from construction on. Only the thread that constructs it may call wait()."""

    def __init__(self, directory: Path, hardware: Hardware, kernel: Kernel, *, state: Path | None = None) -> None:
        """`directory` gets sockets and logs. With a `state`, written by save() on such hardware, it goes on there."""
        self.directory = directory
        self._killed = False
        for name in ("qmp", "agent"):
            (directory / name).unlink(missing_ok=True)
        serial = directory / "serial.log"
        self._console = directory / "console.log"
        serial.unlink(missing_ok=True)
        self._serial = serial
        argv = arguments(hardware, kernel)
        argv += ["-qmp", f"unix:{directory / 'qmp'},server=on,wait=off", "-serial", f"file:{serial}"]
        argv += ["-chardev", f"socket,id=agent,path={directory / 'agent'},server=on,wait=off"]
        argv += ["-device", "virtserialport,chardev=agent,name=agent"]
        if state is not None:
            argv += ["-incoming", f"exec:cat '{state}'"]
        with (directory / "qemu.log").open("ab") as log:
            # The guest must not outlive the test run, even where that is killed.
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "--", *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self.qmp = self._connect_qmp()
            if state is not None:
                self._wait_migration()
                self.qmp.execute("cont")  # it was stopped when it was saved, and still is
            self.channel = Channel(directory / "agent")
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """Take the power away. Safe from any thread; wait() returns soon after."""
        self._killed = True
        self._process.kill()

    def save(self, state: Path) -> None:
        """Stop the guest for good, writing its memory and devices to the file `state`. wait() returns soon after."""
        self.qmp.execute("stop")
        self.qmp.execute("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        self.qmp.execute("migrate", uri=f"exec:cat >'{state}'")
        self._wait_migration()
        self.qmp.execute("quit")  # and not kill(): the tables of the disk's file must be written as well

    def wait(self) -> End:
        """Wait until QEMU ended, for whatever reason; then all is closed."""
        status = self._process.wait()
        self.qmp.drain()
        self.qmp.close()
        self.channel.close()
        serial = self._serial.read_bytes() if self._serial.exists() else b""
        with self._console.open("ab") as console:
            console.write(serial)
        if self._killed:
            return End.POWER_CUT
        reasons = [event["data"].get("reason") for event in self.qmp.events if event["event"] == "SHUTDOWN"]
        if status != 0 or PANIC in serial:
            return End.CRASH
        return End.REBOOT if "guest-reset" in reasons else End.POWER_OFF

    def _wait_migration(self) -> None:
        deadline = time.monotonic() + STATE_TIMEOUT
        while (progress := self.qmp.execute("query-migrate")).get("status") != "completed":
            if progress.get("status") == "failed" or time.monotonic() > deadline:
                raise HostRingError(f"the guest's state was not saved or not loaded: {progress}")
            time.sleep(0.05)

    def _connect_qmp(self) -> Qmp:
        deadline = time.monotonic() + SOCKETS_TIMEOUT
        while True:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError, HostGone):
                return Qmp(self.directory / "qmp")
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (self.directory / "qemu.log").read_text(errors="replace")
                raise HostRingError(f"QEMU did not start: {log[-2000:]}")
            time.sleep(0.02)


def clock_options(accel: str) -> str:
    """Return the options of the kernel that its clock needs on this machine, with a blank before them."""
    khz = _counter_khz() if accel == "tcg" else None
    return f" tsc_early_khz={khz}" if khz is not None else ""


def arguments(hardware: Hardware, kernel: Kernel) -> list[str]:
    platform = PLATFORMS[hardware.accel]
    machine = platform.machine if kernel.firmware is None else f"{platform.machine},smm=on"
    argv = [
        *(platform.program, "-M", machine, "-accel", platform.accel, "-cpu", platform.cpu),
        *("-smp", str(hardware.cpus), "-m", str(hardware.memory)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-rtc", "base=utc,clock=host"),
        *_started(hardware, kernel),
        *("-object", "iothread,id=io0", *_drive("disk", hardware.disk, "qcow2", "off")),
        *("-device", "virtio-blk-pci,drive=disk,id=vda,iothread=io0,num-queues=1,serial=system"),
        *("-device", "virtio-rng-pci", *platform.devices, "-device", "virtio-serial-pci"),
    ]
    if hardware.media is not None:
        argv += [*_drive("media", hardware.media, "raw", "on")]
        argv += ["-device", "virtio-blk-pci,drive=media,id=vdb,num-queues=1,serial=media"]
    if hardware.tpm is not None:
        argv += ["-chardev", f"socket,id=tpm,path={hardware.tpm}", "-tpmdev", "emulator,id=tpm0,chardev=tpm"]
        argv += ["-device", "tpm-tis,tpmdev=tpm0"]
    if kernel.firmware is not None:
        # Last, so that the names of the other disks stay. With an index, the firmware connects this disk only.
        argv += [*_drive("esp", kernel.firmware.esp, "raw", "off")]
        argv += ["-device", "virtio-blk-pci,drive=esp,id=vdc,num-queues=1,serial=esp,bootindex=1"]
    return argv


def _started(hardware: Hardware, kernel: Kernel) -> Sequence[str]:
    firmware = kernel.firmware
    if firmware is not None:
        flash = "if=pflash,format=raw"
        return (
            *("-global", "ICH9-LPC.disable_s3=1", "-global", "driver=cfi.pflash01,property=secure,value=on"),
            *("-drive", f"{flash},unit=0,readonly=on,file={firmware.code}"),
            *("-drive", f"{flash},unit=1,file={firmware.variables}"),
        )
    argv = ["-kernel", str(kernel.image)]
    if kernel.initrd is not None:
        options = f"{kernel.options}{clock_options(hardware.accel)}{PLATFORMS[hardware.accel].options}"
        argv += ["-initrd", str(kernel.initrd), "-append", options]
    return argv


def _counter_khz() -> int | None:
    """Return the frequency of this machine's time stamp counter, None where it is not known.

    A machine that is a guest itself shows it as that of the processor; others show the frequency of the moment.
    """
    try:
        lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    except OSError:
        return None
    about = {key.strip(): value.split() for key, _, value in reversed(lines)}
    if "hypervisor" not in about.get("flags", []) or "cpu MHz" not in about:
        return None
    return round(float(about["cpu MHz"][0]) * 1000)


def _drive(name: str, path: Path, form: str, read_only: str) -> Sequence[str]:
    return ("-drive", f"id={name},file={path},format={form},if=none,cache=unsafe,read-only={read_only}")
