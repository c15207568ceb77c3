# SPDX-License-Identifier: Apache-2.0
"""KernelArgs: read-modify-write of what the caller says is there. Nothing is pulled."""

from __future__ import annotations

from dataclasses import dataclass

from integration.standins.rpmostreed.standin.finalize import check_inhibitors
from integration.standins.rpmostreed.standin.kargs import KernelArguments
from integration.standins.rpmostreed.standin.options import Options
from integration.standins.rpmostreed.standin.transaction import Work
from integration.standins.rpmostreed.standin.upgrader import Upgrader


@dataclass(frozen=True, slots=True)
class KernelArgs:
    osname: str
    existing: str
    added: list[str]
    replaced: list[str]
    deleted: list[str]
    options: Options

    def __call__(self, work: Work) -> None:
        upgrader = Upgrader(work, self.osname, synthetic=True, locked=self.options.boolean("lock-finalization"))
        final = self.options.text("final-kernel-args")
        arguments = KernelArguments(self.existing if final is None else final)
        changed = self._patch(arguments) if final is None else final != self.existing
        if not changed:
            work.output.message("No changes.")
            return
        upgrader.kernel_arguments = arguments.words
        upgrader.deploy()
        if self.options.boolean("reboot"):
            check_inhibitors(work)
            work.host.request_reboot()

    def _patch(self, arguments: KernelArguments) -> bool:
        before = list(arguments.words)
        for argument in self.deleted:
            arguments.delete(argument)
        for argument in self.replaced:
            arguments.replace(argument)
        for argument in self.added:
            arguments.append(argument)
        # Requested explicitly counts as a change, even where the result is the same.
        changed = bool(self.deleted or self.replaced or self.added)
        for argument in self.options.texts("append-if-missing"):
            if argument not in arguments.words:
                arguments.append(argument)
                changed = True
        for argument in self.options.texts("delete-if-present"):
            if argument in before:
                arguments.delete(argument)
                changed = True
        return changed
