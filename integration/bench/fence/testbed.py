# SPDX-License-Identifier: Apache-2.0
"""The machine of the benchmark: a slow disk, etcd and an open-loop probe on it, and a service that stages an update.

Everything runs as services of the guest. Times are the guest's monotonic clock, which is that of every program in it.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from integration.bench.fence.source import Source
from integration.bench.fence.stats import Entry
from integration.bench.fence.variants import Variant
from integration.hosts.vm.virtual_machine import Vm

__all__ = ["PUTS", "RATE", "Disk", "Mark", "Testbed"]

RATE = 50.0  # appends a second of the probe
PUTS = 5.0  # a second into etcd
GUEST = Path(__file__).parent / "guest"
HOME = "/run/bench"  # in memory: nothing of the harness is on the disk
UNITS = "/run/systemd/system"
PYTHON = "/usr/lib/nodeagent/bin/python3"
STAGE = "bench-stage.service"
VICTIMS = ("bench-probe.service", "bench-etcd.service")
STAGE_TIMEOUT = 1200.0
CLEAN_TIMEOUT = 300.0
ETCD_PORT = 2379

_SERVICE = """\
[Unit]
Description=Benchmark of the fence: {what}
StartLimitIntervalSec=0

[Service]
{settings}
"""
# As OpenShift starts its etcd: ionice -c2 -n0. Not nice -19: on the guest's only processor that keeps kernel threads,
# which write the log for it, waiting; a control plane has several.
_VICTIM = """\
Slice=victims.slice
IOSchedulingClass=best-effort
IOSchedulingPriority=0
StandardError=file:/run/bench/errors
ExecStart={command}"""
# Little of the processor where others want it, in all variants but one: what is compared is the disk. By its slice,
# which also turns the controller on: without it the kernel shares the processor out by session (autogroups), whatever
# their niceness. Not CPUWeight=idle: who is interrupted with a handle of ext4's journal stops all others until it goes
# on.
SLICE = "osupdate.slice"
CGROUP = f"/sys/fs/cgroup/{SLICE}"
PAUSES = "bench-pauses.service"
_SLICE = "[Slice]\nCPUWeight=20\n"
_STAGE = f"""\
Type=exec
Slice={SLICE}
RemainAfterExit=yes
IOAccounting=yes
PrivateMounts=yes
EnvironmentFile={HOME}/stage.env
ExecStart=/bin/bash {HOME}/stage.sh $COMMITS"""


@dataclass(frozen=True, slots=True)
class Disk:
    """How slow the system disk is; None: as fast as this machine's."""

    iops: int = 500
    bytes_per_second: int = 12_000_000
    piece: int = 32 << 10


@dataclass(frozen=True, slots=True)
class Mark:
    """What the counters said at a moment. Times are seconds, of the guest's clock or of work."""

    at: float
    guest_busy: float
    disk_busy: float
    etcd: Mapping[str, float]
    host_at: float
    host_waited: float
    """For which QEMU's threads were ready to run and this machine had no processor for them."""
    host_worked: float
    host_stolen: float
    """Of this machine's processors: for which they worked, and wanted to and were not let, where it is a guest, too."""


class Testbed:
    # pytest collects no tests from it.
    __test__ = False

    def __init__(
        self, vm: Vm, source: Source, disk: Disk | None, *, innocent: bool = False, trace: bool = False
    ) -> None:
        """``innocent``: with a third program on the disk; ``trace``: who waits when the probe does is noted."""
        self.vm = vm
        self._innocent = innocent
        self._trace = trace
        self._source = source
        self._disk = disk

    def make(self) -> None:
        """Have everything but the staging run, on the slow disk."""
        for path in sorted(GUEST.iterdir()):
            if path.is_file():
                self.vm.write(f"{HOME}/{path.name}", path.read_bytes())
        python = "/usr/bin/python3 -I -S"
        etcd = "/var/media/etcd --data-dir=/var/bench/etcd --log-level=warn"
        self._unit(
            "bench-probe.service",
            "an open-loop probe",
            _VICTIM.format(command=f"{python} {HOME}/probe.py /var/bench/wal {HOME}/probe.bin {RATE:g}"),
        )
        self._unit("bench-etcd.service", "etcd", _VICTIM.format(command=etcd))
        self._unit(
            "bench-puts.service",
            "puts",
            f"ExecStart={python} {HOME}/puts.py {ETCD_PORT} {HOME}/puts.bin {PUTS:g}",
        )
        self.vm.write(f"{UNITS}/{SLICE}", _SLICE)
        self._unit(STAGE, "stages an update", _STAGE)
        self._unit(PAUSES, "pauses of the update", f"ExecStart={python} {HOME}/paused.py {CGROUP} {HOME}/pauses")
        self.vm.write(f"{HOME}/stage.env", "COMMITS=\n")
        self._program("clean.sh", timeout=CLEAN_TIMEOUT)
        # Built into the kernels of RHCOS and Fedora CoreOS, a module in Debian's.
        self.vm.run(["modprobe", "mq-deadline"])
        self.vm.run(["mkdir", "-p", "/var/bench"])
        self.vm.run(["systemctl", "daemon-reload"], timeout=60)
        self.vm.run(["systemctl", "start", *VICTIMS, "bench-puts.service"], timeout=120)
        self.vm.wait_for(lambda: self.mark().etcd, "etcd answers", 120)
        if self._trace:
            probe = self.vm.unit("bench-probe.service", "MainPID")["MainPID"]
            self._unit("bench-waits.service", "who waits", f"ExecStart={python} {HOME}/waits.py {probe} {HOME}/waits")
            self.vm.run(["systemctl", "start", "bench-waits.service"])
        if self._innocent:
            files = f"/var/bench/innocent/data {HOME}/reads.bin {HOME}/writes.bin"
            self._unit("bench-innocent.service", "a third program", f"ExecStart={python} {HOME}/innocent.py {files}")
            self.vm.run(["systemctl", "start", "bench-innocent.service"])
            self.vm.wait_for(lambda: self.vm.exists(f"{HOME}/writes.bin"), "the third program runs", 120)

    def throttle(self) -> None:
        if self._disk is not None:
            self.vm.throttle(iops=self._disk.iops, bytes_per_second=self._disk.bytes_per_second, piece=self._disk.piece)

    def clean(self) -> None:
        """Restore the state before a staging, with the disk at full speed in the meantime."""
        self.vm.unthrottle()
        self._program("clean.sh", timeout=CLEAN_TIMEOUT)
        self.throttle()

    def mark(self) -> Mark:
        waited, host = self._host_waited(), psutil.cpu_times()
        lines = self.vm.run(["bash", f"{HOME}/mark.sh"]).stdout.splitlines()
        cpu = [int(word) for word in lines[1].split()[1:]]
        pairs = (line.rsplit(" ", 1) for line in lines[3:])
        return Mark(
            at=float(lines[0].split()[0]),
            guest_busy=(sum(cpu[:8]) - cpu[3] - cpu[4]) / 100,
            disk_busy=int(lines[2].split()[12]) / 1000,
            etcd={name: float(value) for name, value in pairs},
            host_at=time.monotonic(),
            host_waited=waited,
            host_worked=host.user + host.nice + host.system,
            host_stolen=host.steal,
        )

    # Staging

    @contextmanager
    def prepared(self, variant: Variant, commits: Sequence[str]) -> Iterator[None]:
        """Around a staging: everything that the variant sets beforehand."""
        drop_in = ["[Service]", f"Nice={variant.nice}"]
        if variant.io_class:
            drop_in += [f"IOSchedulingClass={variant.io_class}", f"IOSchedulingPriority={variant.io_priority}"]
        self.vm.write(f"{UNITS}/{STAGE}.d/10-variant.conf", "\n".join(drop_in) + "\n")
        self.vm.write(f"{HOME}/stage.env", f"COMMITS={' '.join(commits)}\n")
        self.vm.run(["systemctl", "daemon-reload"], timeout=60)
        self._program("repo.sh", "core.per-object-fsync", str(variant.object_fsync).lower())
        limits = [
            f"IOWriteIOPSMax=/dev/vda {variant.write_iops}" if variant.write_iops else "IOWriteIOPSMax=",
            f"IOWriteBandwidthMax=/dev/vda {variant.write_bps}" if variant.write_bps else "IOWriteBandwidthMax=",
            f"MemoryHigh={variant.memory_high or 'infinity'}",
            f"CPUQuota={variant.cpu_quota}%" if variant.cpu_quota else "CPUQuota=",
        ]
        self.vm.run(["systemctl", "set-property", "--runtime", STAGE, *limits])
        self.vm.run(["systemctl", "set-property", "--runtime", SLICE, f"CPUWeight={variant.cpu_weight}"])
        if variant.realtime_victims:
            self._program("class.sh", "-c1 -n0", *VICTIMS)
        if (shape := variant.queue) is not None:
            wbt = "0" if shape.no_wbt else "-"
            shaped = (shape.max_sectors_kb, shape.depth, shape.scheduler, wbt)
            self._program("queue.sh", "set", *(str(each or "-") for each in shaped))
        if variant.io_cost is not None and self._disk is not None:
            limits = [str(self._disk.iops), str(self._disk.bytes_per_second)]
            self._program("iocost.sh", "on", str(variant.io_cost), *limits)
        if variant.pauses:
            self.vm.run(["systemctl", "start", PAUSES])
        try:
            yield
        finally:
            if variant.pauses:
                self.vm.run(["systemctl", "stop", PAUSES])
            if variant.io_cost is not None:
                self._program("iocost.sh", "off")
            if shape is not None:
                self._program("queue.sh", "restore")
            if variant.realtime_victims:
                self._program("class.sh", "-c2 -n0", *VICTIMS)

    def stage(self, terms: Mapping[str, Any] | None, rest: float) -> Mapping[str, str]:
        """Stage and wait, in a fence on these terms if they are not None. Properties of the service, among them when it
        ran, in µs; they are asked for after a ``rest`` of so many seconds."""
        program = ["bash", f"{HOME}/started.sh", STAGE]
        if terms is not None:
            program = [PYTHON, f"{HOME}/fenced.py", STAGE, f"{HOME}/fence.log", json.dumps(terms), *program]
        self.vm.run(program, timeout=STAGE_TIMEOUT)
        time.sleep(rest)
        times = ("ExecMainStartTimestampMonotonic", "ExecMainExitTimestampMonotonic")
        # It remains, or systemd would forget all of this at once.
        found = self.vm.unit(STAGE, *times, "IOWriteBytes", "IOWriteOperations")
        self.vm.run(["systemctl", "stop", STAGE], timeout=60)
        return found

    def fence_log(self) -> list[Mapping[str, Any]]:
        """Return the log of guest/fenced.py about the fence of the last staging."""
        return [json.loads(line) for line in self.vm.read_text(f"{HOME}/fence.log").splitlines()]

    def pauses(self) -> list[Mapping[str, Any]]:
        """Return the log of guest/paused.py about the last staging that it paused."""
        return [json.loads(line) for line in self.vm.read_text(f"{HOME}/pauses").splitlines()]

    def steps(self) -> list[float]:
        """When each commit of the last staging was there; seconds of the guest's clock."""
        return [float(line) for line in self.vm.read_text(f"{HOME}/steps").splitlines()]

    # What was measured

    def waits(self) -> str:
        """Return the notes of guest/waits.py, with ``trace``."""
        return self.vm.read_text(f"{HOME}/waits")

    def entries(self) -> list[Entry]:
        return self._records("probe.bin")

    def others(self) -> Mapping[str, list[Entry]]:
        """Puts into etcd, and what the third program did."""
        names = ("puts", "reads", "writes") if self._innocent else ("puts",)
        return {name: self._records(f"{name}.bin") for name in names}

    def _records(self, name: str) -> list[Entry]:
        data = self.vm.read(f"{HOME}/{name}")
        whole = struct.iter_unpack("<ddd", data[: len(data) // 24 * 24])
        return [Entry(due, begun, done) for due, begun, done in whole if done]

    # Details

    def _unit(self, name: str, what: str, settings: str) -> None:
        self.vm.write(f"{UNITS}/{name}", _SERVICE.format(what=what, settings=settings))

    def _program(self, name: str, *arguments: str, timeout: float = 60.0) -> str:
        return self.vm.run(["bash", f"{HOME}/{name}", *arguments], timeout=timeout).stdout

    def _host_waited(self) -> float:
        waited = 0
        for path in Path(f"/proc/{self.vm.pid}/task").glob("*/schedstat"):
            with suppress(FileNotFoundError, ProcessLookupError):
                waited += int(path.read_text().split()[1])
        return waited / 1e9
