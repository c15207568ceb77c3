# SPDX-License-Identifier: Apache-2.0
"""Adapt prebuilt ELF files (64-bit, little endian) to every host, and check that they fit.

pyelftools reads the files: the libraries that they need, and the symbol versions. The changes are ours, because
pyelftools writes nothing: drop a needed library, bind a symbol to an older version, remove debug information. No offset
of what the loader reads moves.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile

MAGIC = b"\x7fELF\x02\x01"
DYN_SIZE = 16
# Offsets in the header of a file and in the entry of a section, and the flag of a section that is in memory.
E_SHOFF, E_SHNUM, SH_OFFSET = 0x28, 0x3C, 0x18
SHF_ALLOC = 2
ALIGNMENT = 8


class VersionNeed(NamedTuple):
    version: str  # such as GLIBC_2.34
    number: int  # in .gnu.version
    offset: int  # of its Elf64_Vernaux in the file


class Elf:
    """One file in memory. `data` changes in place; what is read is the file as it was."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self._file = ELFFile(BytesIO(bytes(data)))

    @classmethod
    def read(cls, path: Path) -> Elf | None:
        """Return the file at `path`; None if it is no ELF file of this kind."""
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
            return cls(bytearray(head + file.read())) if head == MAGIC else None

    @classmethod
    def parse(cls, content: bytes) -> Elf | None:
        """Return the file with this content; None if it is no ELF file of this kind."""
        return cls(bytearray(content)) if content.startswith(MAGIC) else None

    def needed(self) -> list[str]:
        """Return the names of the shared libraries that the loader must find."""
        dynamic = self._file.get_section_by_name(".dynamic")
        return [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")] if dynamic else []

    def version_needs(self) -> Iterator[VersionNeed]:
        section = self._file.get_section_by_name(".gnu.version_r")
        if section is None:
            return
        position = section["sh_offset"]
        for need, versions in section.iter_versions():
            offset = position + need["vn_aux"]
            for version in versions:
                yield VersionNeed(version.name, version["vna_other"], offset)
                offset += version["vna_next"]
            position += need["vn_next"]

    def drop_needed(self, library: str) -> None:
        """Remove the dependency on `library`. The file must use no symbol of it."""
        dynamic = self._file.get_section_by_name(".dynamic")
        entries = list(dynamic.iter_tags())
        for index, tag in enumerate(entries):
            if tag.entry.d_tag == "DT_NEEDED" and tag.needed == library:
                # The entries after it move up. The last one, DT_NULL, stays where it is.
                start, end = (dynamic["sh_offset"] + DYN_SIZE * number for number in (index, len(entries) - 1))
                self.data[start:end] = self.data[start + DYN_SIZE : end + DYN_SIZE]
                return
        raise ValueError(f"{library} is not needed")

    def strip(self) -> None:
        """Remove symbols and debug information that the loader does not read; to be called after the other changes.

        The kept sections keep their numbers. A file with another order of sections stays as it is.
        """
        header = self._file.header
        sections = list(self._file.iter_sections())
        kept = 1 + sum(bool(each["sh_flags"] & SHF_ALLOC) for each in sections)
        end = max(each["p_offset"] + each["p_filesz"] for each in self._file.iter_segments())
        if any(each["sh_flags"] & SHF_ALLOC or each["sh_offset"] < end for each in sections[kept:]):
            return
        size, table, names = header["e_shentsize"], header["e_shoff"], sections[header["e_shstrndx"]]
        entries = bytearray(self.data[table : table + kept * size])
        entries += self.data[table + header["e_shstrndx"] * size :][:size]
        struct.pack_into("<Q", entries, kept * size + SH_OFFSET, end)
        self.data[end:] = names.data()
        self.data += b"\0" * (-len(self.data) % ALIGNMENT)
        struct.pack_into("<Q", self.data, E_SHOFF, len(self.data))
        struct.pack_into("<HH", self.data, E_SHNUM, kept + 1, kept)
        self.data += entries

    def rebind(self, symbol: str, version: str, to: str) -> None:
        """Bind `symbol` to `to`, an older version of it; no change if the file does not use `version`.

        The caller knows that the older function does what the file needs. Raises ValueError if other symbols are bound
        to `version`, because the loader would bind those to `to` as well.
        """
        for need in self.version_needs():
            bound = self._bound_to(need) if need.version == version else set()
            if bound == {symbol}:
                # The lowest version of an architecture, the only useful `to`, is a string of every file.
                names = self._file.get_section_by_name(".gnu.version_r").stringtable.data()
                struct.pack_into("<I", self.data, need.offset, _hash(to))
                struct.pack_into("<I", self.data, need.offset + 8, names.index(b"\0" + to.encode() + b"\0") + 1)
            elif symbol in bound:
                raise ValueError(f"{version} is also the version of {', '.join(sorted(bound - {symbol}))}")

    def _bound_to(self, need: VersionNeed) -> set[str]:
        symbols = self._file.get_section_by_name(".gnu.version").iter_symbols()
        # The two marks of a version, local and global, are strings.
        return {each.name for each in symbols if isinstance(each["ndx"], int) and each["ndx"] & 0x7FFF == need.number}


def replace_string(data: bytearray, old: str, new: str) -> int:
    """Replace `old` in every NUL-terminated string of `data`, keeping the rest of the string. Returns how often."""
    if len(new) > len(old):
        raise ValueError(f"{new} is longer than {old}")
    count = 0
    start = data.find(old.encode())
    while start >= 0:
        end = data.index(0, start)
        tail = bytes(data[start + len(old) : end])
        data[start:end] = (new.encode() + tail).ljust(end - start, b"\0")
        count += 1
        start = data.find(old.encode(), start)
    return count


def _hash(name: str) -> int:
    """Return the hash of the name of a symbol version, as the System V ABI defines it."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ ((value & 0xF0000000) >> 24)) & 0x0FFFFFFF
    return value
