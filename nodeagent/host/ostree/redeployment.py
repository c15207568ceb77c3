# SPDX-License-Identifier: Apache-2.0
"""Roll back without a prompt: deploy the previous tree once more where GRUB would ask for a password.

Another order keeps the boot menu entry of the previous deployment. A new deployment gets an entry without the list of
users. A host that waits for a password at its console does not come back, so this is worth the second tree.

GRUB asks for a password before it boots an entry if a list of superusers is set and the entry has a list of users, even
an empty one (the key ``grub_users``; Fedora's ``blscfg`` starts all other entries for all users). CoreOS adds that key
to each entry except the default one, and keeps it when such an entry becomes the default.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from nodeagent.core.config.kargs import line_of
from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import AgentError, Terminal
from nodeagent.host.dbus.client import Bus
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.ostree.boot_order import BootEntry
from nodeagent.host.ostree.programs import CommandTiming
from nodeagent.host.systemd_jobs import run_unit
from nodeagent.reasons import Reason

_DIRECTORIES = ("boot/grub2", "boot/grub")
_NAMES = ("user.cfg", "custom.cfg", "grub.cfg")
_EFI = "boot/efi/EFI"
# Bytes of one file.
_MAX = 1 << 20

# Each grub.cfg sets the superuser if user.cfg has a password, so user.cfg decides.
_CONDITIONAL = re.compile(r'if \[ -n "?\$\{?GRUB2_PASSWORD\}?"? \]; *then.*?^\s*fi$', re.DOTALL | re.MULTILINE)
_SET = re.compile(r"""^\s*(set\s+superusers=["']?[^\s"']|GRUB2_PASSWORD=["']?[^\s"'])""", re.MULTILINE)


def has_superusers(root: Path) -> bool:
    """Return whether GRUB has superusers. A file that cannot be read counts as True.

    Blocks for a few files on the disk; call it in a thread.
    """
    for path in _files(root):
        try:
            text = read_regular(path, _MAX).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        # The caller then deploys the tree again, which takes longer and needs no password.
        except OSError:
            return True
        if _SET.search(_CONDITIONAL.sub("", text)):
            return True
    return False


def _files(root: Path) -> Iterator[Path]:
    for directory in _DIRECTORIES:
        yield from (root / directory / name for name in _NAMES)
    try:
        vendors = sorted((root / _EFI).iterdir())
    except OSError:
        return
    # RHEL 8 and older Fedora have the whole menu there.
    yield from (vendor / name for vendor in vendors for name in _NAMES)


class BootOrder(Protocol):
    """``first`` boots next. ``entries`` are by deployment id."""

    @property
    def first(self) -> Deployment: ...

    @property
    def entries(self) -> Mapping[str, BootEntry]: ...


class Redeployment:
    """Deploys an old tree again, in a transient unit: the unit of nodeagent cannot write /sysroot."""

    def __init__(self, make_bus: Callable[[], Bus], root: Path, timing: CommandTiming) -> None:
        self._make_bus = make_bus
        self._root = root
        self._timing = timing

    async def needed(self, state: BootOrder, deployment: Deployment) -> bool:
        """Return whether GRUB asks for a password before it boots ``deployment``."""
        entry = state.entries.get(deployment.id)
        return entry is not None and entry.restricted and await asyncio.to_thread(has_superusers, self._root)

    async def deploy(self, old: Deployment, read: Callable[[], Awaitable[BootOrder]]) -> str:
        """Deploy the tree of ``old`` again, with its origin and kernel arguments, and return the new id.

        ``read`` reads the deployments afterwards. Raises ``Terminal`` (``RollbackAsksPassword``).
        """
        cause = ""
        try:
            async with self._make_bus() as bus:
                await run_unit(bus, _command(old), "Deploy the old tree for nodeagent", self._timing.redeploy)
        except AgentError as error:
            cause = f": {error.message}"
        state = await read()
        first = state.first
        # A redeploy that reports success may still have made another deployment, so the result is checked.
        if first.checksum != old.checksum or first.booted or await self.needed(state, first):
            message = f"GRUB asks for a password before it boots {old.id}, and it cannot be deployed again{cause}"
            raise Terminal(message, reason=Reason.ROLLBACK_ASKS_PASSWORD)
        return first.id


def _command(old: Deployment) -> tuple[str, ...]:
    """Return the command that deploys the tree of ``old`` again, first in boot order.

    libostree merges /etc of the booted deployment into it.
    """
    # systemd expands variables in the arguments of a command.
    tokens = [token.replace("$", "$$") for token in line_of(old.kernel_arguments)]
    origin = f"/ostree/deploy/{old.osname}/deploy/{old.id.removeprefix(f'{old.osname}-')}.origin"
    command = ("/usr/bin/ostree", "admin", "deploy", f"--os={old.osname}", f"--origin-file={origin}", "--karg-none")
    return (*command, *(f"--karg-append={token}" for token in tokens), old.checksum)
