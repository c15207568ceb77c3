"""Just enough of ELF (64-bit, little endian) to make prebuilt binaries fit to be shipped, and to prove that they are.

Reading: which libraries a file needs and which symbol versions of them. Writing: drop a needed library, bind a symbol
to an older version. Only bytes of equal length are replaced, so no offset in the file moves.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MAGIC = b"\x7fELF\x02\x01"
PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_STRSZ = 0, 1, 5, 6, 10
DT_VERSYM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
SHT_GNU_VERSYM = 0x6FFFFFFF
DYN_SIZE, SYMBOL_SIZE = 16, 24


class VersionNeed(NamedTuple):
    library: str
    version: str  # such as GLIBC_2.34
    offset: int  # of its Elf64_Vernaux in the file


class Elf:
    """One file in memory. `data` changes in place."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        (phoff,) = struct.unpack_from("<Q", data, 32)
        phentsize, phnum = struct.unpack_from("<HH", data, 54)
        self._loads: list[tuple[int, int, int]] = []
        self._dynamic = 0
        for index in range(phnum):
            kind, _flags, offset, address, _physical, size = struct.unpack_from(
                "<IIQQQQ", data, phoff + index * phentsize
            )
            if kind == PT_LOAD:
                self._loads.append((address, size, offset))
            elif kind == PT_DYNAMIC:
                self._dynamic = offset
        self._tags = tags = dict(self._entries())
        self._strings = self._offset(tags[DT_STRTAB]) if DT_STRTAB in tags else 0
        self._strings_size = tags.get(DT_STRSZ, 0)

    @classmethod
    def read(cls, path: Path) -> Elf | None:
        """The file at `path`; None if it is no ELF file of the kind that we handle."""
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
            return cls(bytearray(head + file.read())) if head == MAGIC else None

    def needed(self) -> list[str]:
        """Names of the shared libraries that the loader must find."""
        return [self._string(value) for tag, value in self._entries() if tag == DT_NEEDED]

    def version_needs(self) -> Iterator[VersionNeed]:
        position = self._offset(self._tags[DT_VERNEED]) if DT_VERNEED in self._tags else 0
        for _ in range(self._tags.get(DT_VERNEEDNUM, 0)):
            _version, count, file, aux, following = struct.unpack_from("<HHIII", self.data, position)
            entry = position + aux
            for _ in range(count):
                _hash, _flags, _other, name, after = struct.unpack_from("<IHHII", self.data, entry)
                yield VersionNeed(self._string(file), self._string(name), entry)
                entry += after
            position += following

    def drop_needed(self, library: str) -> None:
        """Forget the dependency on `library`, of which the file must use no symbol."""
        position = self._dynamic
        while True:
            tag, value = struct.unpack_from("<QQ", self.data, position)
            if tag == DT_NULL:
                raise ValueError(f"{library} is not needed")
            if tag == DT_NEEDED and self._string(value) == library:
                break
            position += DYN_SIZE
        while tag != DT_NULL:
            following = bytes(self.data[position + DYN_SIZE : position + 2 * DYN_SIZE])
            self.data[position : position + DYN_SIZE] = following
            tag = struct.unpack_from("<Q", following)[0]
            position += DYN_SIZE

    def rebind(self, symbol: str, version: str, to: str) -> None:
        """Bind `symbol` to `to`, an older version of it; no change if the file does not use `version`.

        It is for the caller to know that the older function does what the file needs. Raises ValueError if other
        symbols are bound to `version`, because the loader would bind those to `to` as well.
        """
        table = bytes(self.data[self._strings : self._strings + self._strings_size])
        for need in list(self.version_needs()):
            if need.version != version:
                continue
            bound = self._bound_to(need)
            if bound == {symbol}:
                # The lowest version of an architecture, the only `to` that makes sense, is a string of every file.
                struct.pack_into("<I", self.data, need.offset, _hash(to))
                struct.pack_into("<I", self.data, need.offset + 8, table.index(b"\0" + to.encode() + b"\0") + 1)
            elif symbol in bound:
                raise ValueError(f"{version} is also the version of {', '.join(sorted(bound - {symbol}))}")

    def _bound_to(self, need: VersionNeed) -> set[str]:
        (index,) = struct.unpack_from("<H", self.data, need.offset + 6)
        symbols, versions = self._offset(self._tags[DT_SYMTAB]), self._offset(self._tags[DT_VERSYM])
        names = set()
        for number in range(self._symbol_count()):
            (version,) = struct.unpack_from("<H", self.data, versions + 2 * number)
            if version & 0x7FFF == index:
                names.add(self._string(struct.unpack_from("<I", self.data, symbols + SYMBOL_SIZE * number)[0]))
        return names

    def _symbol_count(self) -> int:
        (shoff,) = struct.unpack_from("<Q", self.data, 40)
        shentsize, shnum = struct.unpack_from("<HH", self.data, 58)
        for index in range(shnum):
            (kind,) = struct.unpack_from("<I", self.data, shoff + index * shentsize + 4)
            if kind == SHT_GNU_VERSYM:
                size: int = struct.unpack_from("<Q", self.data, shoff + index * shentsize + 32)[0]
                return size // 2
        raise ValueError("no section tells the number of symbols")

    def _entries(self) -> Iterator[tuple[int, int]]:
        position = self._dynamic
        while position:
            tag, value = struct.unpack_from("<QQ", self.data, position)
            if tag == DT_NULL:
                return
            yield tag, value
            position += DYN_SIZE

    def _offset(self, address: int) -> int:
        for start, size, offset in self._loads:
            if start <= address < start + size:
                return address - start + offset
        raise ValueError(f"address {address:#x} is in no segment")

    def _string(self, offset: int) -> str:
        start = self._strings + offset
        return self.data[start : self.data.index(0, start)].decode()


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
    """The hash of a symbol version's name, as the System V ABI has it."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ ((value & 0xF0000000) >> 24)) & 0x0FFFFFFF
    return value
