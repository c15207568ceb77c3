# SPDX-License-Identifier: Apache-2.0
"""Boots that the boot loader counts: whether it does, GRUB's environment block, and the part of grub.cfg that counts.

Facts (greenboot's ``08_greenboot.cfg`` and Fedora's ``08_fallback_counting``, which are the same script)
- With ``boot_success=0`` and a ``boot_counter``, each boot takes one from the counter. At 0 or -1 it boots entry 1, the
  previous deployment, and the counter becomes -1. With any other value it boots entry 0.
- Each boot sets ``boot_success=0``, so a counter that is not removed counts again from the next boot on.
- The block has exactly 1024 bytes: a first line, one ``name=value`` per line, ``#`` up to the end. A backslash escapes
  a line break or a backslash in a value. GRUB writes it in place, and only on a plain disk and on filesystems without
  checksums of their content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

# Boots of a new deployment, as many as greenboot has by default: two power cuts during a boot are no verdict on it.
TRIES: Final = 3

# Bytes of the environment block.
ENVIRONMENT_SIZE: Final = 1024

_HEADER: Final = "# GRUB Environment Block\n"
# A variable or a comment, with escaped line breaks.
_LINE: Final = re.compile(rb"(?:[^\\\n]|\\.)*\n", re.DOTALL)

# What grub.cfg must have, outside of comments: it reads the counter, counts, chooses the previous entry, and saves.
_LINES: Final = (
    re.compile(r"^\s*load_env\b", re.MULTILINE),
    re.compile(r"^[^#\n]*\bdecrement\s+boot_counter\b", re.MULTILINE),
    re.compile(r"^\s*set\s+default=[\"']?1[\"']?\s*$", re.MULTILINE),
    re.compile(r"^\s*save_env\s+boot_counter\b", re.MULTILINE),
)


class CountedBy(StrEnum):
    NOTHING = ""
    GRUB = "grub"
    SYSTEMD_BOOT = "systemd-boot"


@dataclass(frozen=True, slots=True)
class BootCounting:
    """Whether a host counts the boots of a new deployment, and ``why`` not. ``greenboot``: it checks each boot."""

    by: CountedBy = CountedBy.NOTHING
    why: str = ""
    greenboot: bool = False


def phrase(counting: BootCounting) -> str:
    """Return the answer as a phrase about the boots of a new deployment."""
    greenboot = "; greenboot checks each boot" if counting.greenboot else ""
    match counting.by:
        case CountedBy.GRUB:
            return f"counted by GRUB{greenboot}"
        case CountedBy.SYSTEMD_BOOT:
            return f"counted by systemd-boot{greenboot}"
        case _:
            return f"not counted: {counting.why}{greenboot}"


def plan_lines(part: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a plan says about them. ``part`` is a ``BootCounting`` in JSON."""
    counting = BootCounting(CountedBy(part["by"]), str(part["why"]), bool(part["greenboot"]))
    yield f"boots of the new OS: {phrase(counting)}"


@dataclass(frozen=True, slots=True)
class BootCount:
    """``tries``: boots that are left, None if nothing is counted. ``deployment``: the id of the one for which
    nodeagent began to count, "" if it did not. ``success``: the next boot does not count."""

    tries: int | None = None
    deployment: str = ""
    success: bool = False

    @property
    def counting(self) -> bool:
        """Whether a counter, or a mark of nodeagent, is still to be removed."""
        return self.tries is not None or bool(self.deployment)

    @property
    def went_back(self) -> bool:
        """Whether the boot loader chose the previous deployment, because the tries are used up."""
        return self.tries is not None and self.tries < 0

    @property
    def goes_back(self) -> bool:
        """Whether the next boot takes the second entry."""
        return self.tries is not None and self.tries <= 0 and not self.success


def boot_count(environment: Mapping[str, str]) -> BootCount:
    """Return the count of the boots in an environment block."""
    # A counter that is no number does not count, as in the script of GRUB.
    counter = environment.get("boot_counter", "")
    return BootCount(
        tries=int(counter) if re.fullmatch(r"-?\d{1,4}", counter, re.ASCII) else None,
        deployment=environment.get("nodeagent_deployment", ""),
        success=environment.get("boot_success") == "1",
    )


def parse_environment(block: bytes) -> Mapping[str, str]:
    """Return the variables of an environment block. Raises ``ValueError`` for anything else."""
    text = block.decode("utf-8", "replace")
    if len(block) != ENVIRONMENT_SIZE or not text.startswith(_HEADER):
        raise ValueError("it is no environment block of GRUB")
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def edited_environment(block: bytes, values: Mapping[str, str], unset: Iterable[str] = ()) -> bytes:
    """Return an environment block with these variables set, and those removed; all others stay as they are.

    Raises ``ValueError`` for anything but a block, and if the variables do not fit into one.
    """
    parse_environment(block)
    # Every line ends in a line break, so this removes the padding only, also where the last value ends in "#".
    text = block.rstrip(b"#")
    lines = _LINE.findall(text)
    if b"".join(lines) != text:
        raise ValueError("the environment block of GRUB has a line without an end")
    gone = {name.encode() for name in (*values, *unset)}
    # The lines of the comment and of variables that other programs keep here (kernelopts, saved_entry) must survive:
    # GRUB boots with them.
    others = [line for line in lines if line.startswith(b"#") or line.partition(b"=")[0] not in gone]
    edited = b"".join([*others, *(f"{name}={_escaped(value)}\n".encode() for name, value in values.items())])
    if len(edited) > ENVIRONMENT_SIZE:
        raise ValueError("the environment block of GRUB is full")
    return edited.ljust(ENVIRONMENT_SIZE, b"#")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\\n")


def counts_boots(config: str) -> bool:
    """Return whether GRUB counts boots with this grub.cfg."""
    # A configuration that counts and never goes back, or never saves the count, would be worse than none.
    return all(line.search(config) for line in _LINES)
