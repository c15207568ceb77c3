# SPDX-License-Identifier: Apache-2.0
"""Read the kernel arguments of a config: those of the MachineConfig, and those of its Ignition config."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from nodeagent.core.config import kargs, schema
from nodeagent.core.config.problems import Location, shown

# Without it, no host finds its root file system.
_ROOT: Final = "root="


class Arguments(NamedTuple):
    """Tokens: those that the host must have, in their order, and those that it must not have, sorted."""

    wanted: tuple[str, ...]
    absent: tuple[str, ...]


def read_arguments(spec: schema.Spec, where: Location) -> Arguments:
    """``where`` is the location of ``spec``. An argument of both kinds is a problem, and counts as wanted."""
    of_ignition = (spec.config or schema.Config()).kernel_arguments or schema.KernelArguments()
    at = where.child("config.kernelArguments")
    wanted = (
        *_tokens(spec.kernel_arguments or [], where.child("kernelArguments")),
        *_tokens(of_ignition.should_exist or [], at.child("shouldExist")),
    )
    # The kernel truncates a longer command line without an error.
    if sum(map(len, wanted)) + len(wanted) > kargs.MAX_LENGTH:
        where.bad("kernelArguments", f"must not be longer than {kargs.MAX_LENGTH} characters together")
    absent = set()
    for token in _tokens(of_ignition.should_not_exist or [], at.child("shouldNotExist")):
        if token in wanted:
            at.bad("shouldNotExist", f"{shown(token)} must exist as well")
        elif token.startswith(_ROOT):
            at.bad("shouldNotExist", "must not hold root=, without which the host does not boot")
        else:
            absent.add(token)
    return Arguments(wanted, tuple(sorted(absent)))


def _tokens(entries: Sequence[str], where: Location) -> Iterator[str]:
    for index, entry in enumerate(entries):
        if problem := kargs.entry_problem(entry):
            where.item(index).bad("", problem)
        else:
            yield from kargs.split(entry)
