# SPDX-License-Identifier: Apache-2.0
"""Machines with a TPM 2.0: swtpm, which QEMU gives to the guest as a TPM with the TIS interface.

Keys and seeds of a TPM are in a directory: with the same directory the guest has the same TPM after a reboot, with an
empty one it has another. Each run of QEMU has its own swtpm, which is a power cycle of the TPM as well: the registers
(PCRs) begin with zeros, and the firmware extends them again. Not for frozen guests: their state would be that of
another TPM.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from integration.hosts.errors import HostRingError
from integration.hosts.requirements import Say
from integration.hosts.vm import vm_requirements
from integration.hosts.vm.qemu import End
from integration.hosts.vm.virtual_machine import Vm

PROGRAM: Final = "swtpm"
# Seconds; it ends with the connection of QEMU.
STOP_TIMEOUT: Final = 60.0

# systemd loads these libraries at run time, so its packages only suggest them. The kernel has the driver built in.
PACKAGES: Final = ("libtss2-esys-3.0.2-0t64", "libtss2-mu-4.0.1-0t64", "libtss2-rc0t64", "libtss2-tcti-device0t64")


def ensure(say: Say) -> None:
    """Install swtpm if it is missing. Raises Unavailable with the reason."""
    vm_requirements.ensure(say, PROGRAM)


class TpmVm(Vm):
    """A machine with a TPM. It must boot cold."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._tpms = 0
        self._socket = self.directory / "tpm"
        self.hardware = replace(self.hardware, tpm=self._socket)

    def replace_tpm(self) -> None:
        """Give the machine, which is off, a TPM that was never used."""
        if self.running:
            raise HostRingError(f"{self.name} is on")
        self._tpms += 1

    def _run_once(self, after_reboot: bool) -> End:
        with self._tpm():
            return super()._run_once(after_reboot)

    @contextlib.contextmanager
    def _tpm(self) -> Iterator[None]:
        state = self.directory / f"tpm-{self._tpms}"
        state.mkdir(exist_ok=True)
        process = self._start(state)
        try:
            yield
            # The guest's last command to it may not be done yet.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT)
        finally:
            process.kill()
            process.wait()

    def _start(self, state: Path) -> subprocess.Popen[bytes]:
        self._socket.unlink(missing_ok=True)
        # The log of QEMU is kept when a test fails.
        with socket.socket(socket.AF_UNIX) as listening, (self.directory / "qemu.log").open("ab") as log:
            # QEMU connects only once, so that the socket must listen before swtpm is ready.
            listening.bind(str(self._socket))
            listening.listen()
            control = f"type=unixio,fd={listening.fileno()}"
            argv = [PROGRAM, "socket", "--tpm2", "--tpmstate", f"dir={state}", "--ctrl", control, "--terminate"]
            # As QEMU, it must not outlive the test run, even where that is killed.
            return subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "--", *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[listening.fileno()],
            )
