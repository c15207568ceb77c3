# SPDX-License-Identifier: Apache-2.0
"""What the transient units do to the files of a host, as far as `ostree container` and `ostree admin` change them.

The real ones are on the hosts of `integration/hosts/ostree`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dbus_next import Variant

from nodeagent.features.bootc.units import CHECK, PULL
from tests.host.fake_systemd import FakeSystemd
from tests.host.ostree.fake_sysroot import B, FakeDeployment, FakeSysroot

B_DIGEST = f"sha256:{'1' * 64}"
UPDATERS = ("zincati.service", "bootc-fetch-apply-updates.timer", "bootc-fetch-apply-updates.service")
OTHERS = (*UPDATERS, "ostree-boot-complete.service")


@dataclass
class FakeOstree:
    """``fails`` has by unit what it prints when it fails, instead of its work. With ``after``, it works before that."""

    systemd: FakeSystemd
    sysroot: FakeSysroot
    images: dict[str, str] = field(default_factory=lambda: {B_DIGEST: B})
    fails: dict[str, str] = field(default_factory=dict)
    after: bool = False
    idle: bool = False  # success without any work
    hang: str = ""  # the unit that does not end
    commands: list[str] = field(default_factory=list)
    before_end: Callable[[], None] = lambda: None
    _started: int = 0

    def __post_init__(self) -> None:
        self.systemd.job_script = self._job
        for unit in OTHERS:
            self.systemd.units[unit] = {"ActiveState": Variant("s", "inactive")}
        self.count(PULL, None, None)

    def count(self, unit: str, received: int | None, worked: int | None) -> None:
        """Let systemd have counted these bytes and nanoseconds of a unit; None: it does not count them."""
        values = {"IPIngressBytes": received, "CPUUsageNSec": worked}
        counted = {name: Variant("t", 2**64 - 1 if value is None else value) for name, value in values.items()}
        self.systemd.units.setdefault(unit, {}).update(counted)

    async def _job(self, job: int, unit: str) -> None:
        if len(self.systemd.transient) == self._started:
            # A unit is stopped.
            self.commands.append(f"stop {unit}")
            await self.systemd.finish(job, unit, "done")
            return
        self._started += 1
        if unit == self.hang:
            return
        _, command = self.systemd.transient[-1]
        failing = unit in self.fails
        text = self.fails.get(unit, "")
        if not failing or self.after:
            text = self._work(unit, command) + text
            failing = failing or text.startswith("error: ")
        if (output := self.systemd.transient_properties[-1].get("StandardOutputFile")) is not None:
            Path(output).write_text(text)
        self.before_end()
        await self.systemd.finish(job, unit, "failed" if failing else "done")

    def _work(self, unit: str, command: Sequence[str]) -> str:
        words = [word.replace("$$", "$") for word in command]
        words = words[words.index("--") + 1 :] if "--" in words else words[2:]
        self.commands.append(" ".join(words[:1] if unit == CHECK else words))
        if self.idle or unit == CHECK:
            return ""
        return self._container(words) if unit == PULL else self._admin(words)

    def _container(self, words: Sequence[str]) -> str:
        if "pull" not in words:
            return ""
        commit = self.images.get(words[-1].partition("@")[2])
        if commit is None:
            return "error: Creating importer: failed to invoke method OpenImage: reading manifest: manifest unknown\n"
        self.sysroot.commit(commit, words[-1].partition("@")[2], "41.2.0")
        return f"layers already present: 5; layers needed: 2 (1 MB)\nWrote: {words[-1]} => {commit}\n"

    def _admin(self, words: Sequence[str]) -> str:
        there = [*([self.sysroot.staged] if self.sysroot.staged else []), *self.sysroot.deployments]
        match words:
            case ["deploy", *options, commit]:
                values: dict[str, Any] = dict(option.partition("=")[::2] for option in options)
                image = Path(values["--origin-file"]).read_text().partition("reference=")[2].strip()
                line = [option.removeprefix("--karg-append=") for option in options if "--karg-append=" in option]
                serial = 1 + max([d.serial for d in there if d.checksum == commit], default=-1)
                self.sysroot.staged = FakeDeployment(commit, serial, image, " ".join(line))
                self.sysroot.locked = "--lock-finalization" in options
            case ["undeploy", index]:
                gone = there[int(index)]
                if gone is self.sysroot.staged:
                    self.sysroot.staged = None
                else:
                    self.sysroot.deployments.remove(gone)
            case ["set-default", index]:
                chosen = there[int(index)]
                self.sysroot.deployments.remove(chosen)
                self.sysroot.deployments.insert(0, chosen)
            case ["lock-finalization", "--unlock"]:
                self.sysroot.locked = False
        self.sysroot.write()
        return ""
