"""How many calls of whom may be under way at once, so that root always finds a free slot and the memory has a bound.

A call belongs to the user of its caller. Until the bus has answered who that is, a call takes one of the many cheap
slots of the unidentified: all connections that one user may have on the system bus (256) cannot fill them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

__all__ = ["CallLimits", "Slot", "TooManyCalls"]

MAX_CALLS: Final = 64
MAX_RESERVED: Final = 16
"""Of these only for root."""

MAX_OF_USER: Final = 16
"""Of one user other than root."""

MAX_OF_CONNECTION: Final = 8

MAX_UNIDENTIFIED: Final = 2 * 256 * MAX_OF_CONNECTION
MAX_BYTES_UNIDENTIFIED: Final = 192 << 20
"""More than the bus queues for us at once (127 MiB), so large calls of others leave room for one of root."""

MAX_BYTES: Final = 256 << 20
"""Of the identified calls. Those of others than root cannot reach half of it: each is small (``Method.largest``)."""


class TooManyCalls(Exception):
    pass


@dataclass(eq=False, slots=True)
class Slot:
    """``uid`` is None until the caller is identified."""

    connection: str
    size: int
    uid: int | None = None


class CallLimits:
    """``take`` a slot, ``identify`` the caller if it was not known, and ``leave`` the slot in any case. The first two
    raise ``TooManyCalls``."""

    def __init__(self) -> None:
        self._of_connection: Counter[str] = Counter()
        self._of_user: Counter[int] = Counter()
        self._unidentified = 0
        self._bytes_unidentified = 0
        self._bytes = 0

    def take(self, connection: str, size: int, uid: int | None) -> Slot:
        if self._of_connection[connection] >= MAX_OF_CONNECTION:
            raise TooManyCalls("too many calls at once over one connection")
        slot = Slot(connection, size)
        if uid is not None:
            self._begin(slot, uid)
        elif self._unidentified >= MAX_UNIDENTIFIED or self._bytes_unidentified + size > MAX_BYTES_UNIDENTIFIED:
            raise TooManyCalls("too many calls at once")
        else:
            self._unidentified += 1
            self._bytes_unidentified += size
        self._of_connection[connection] += 1
        return slot

    def identify(self, slot: Slot, uid: int) -> None:
        self._begin(slot, uid)
        self._unidentified -= 1
        self._bytes_unidentified -= slot.size

    def leave(self, slot: Slot) -> None:
        if slot.uid is None:
            self._unidentified -= 1
            self._bytes_unidentified -= slot.size
        else:
            self._of_user[slot.uid] -= 1
            self._bytes -= slot.size
        self._of_connection[slot.connection] -= 1
        if not self._of_connection[slot.connection]:
            del self._of_connection[slot.connection]

    def _begin(self, slot: Slot, uid: int) -> None:
        every = self._of_user.total()
        others = every - self._of_user[0]
        if uid != 0 and (self._of_user[uid] >= MAX_OF_USER or others >= MAX_CALLS - MAX_RESERVED):
            raise TooManyCalls("too many calls at once of others than root")
        if every >= MAX_CALLS or self._bytes + slot.size > MAX_BYTES:
            raise TooManyCalls("too many calls at once")
        self._of_user[uid] += 1
        self._bytes += slot.size
        slot.uid = uid
