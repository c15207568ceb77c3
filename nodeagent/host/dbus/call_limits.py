"""Limits on concurrent calls: root always finds a free slot, and the memory in use is bounded.

A call counts for the user of its caller. Until the bus has identified the user, the call takes one of the unidentified
slots. These are cheap, and more than one user can fill with all connections that the system bus allows (256).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

MAX_CALLS: Final = 64

# Slots of ``MAX_CALLS`` that only root can take.
MAX_RESERVED: Final = 16

# Slots of one user other than root.
MAX_OF_USER: Final = 16

MAX_OF_CONNECTION: Final = 8

MAX_UNIDENTIFIED: Final = 2 * 256 * MAX_OF_CONNECTION

# More than the bus queues for one connection (127 MiB), so large calls of other users leave room for one of root.
MAX_BYTES_UNIDENTIFIED: Final = 192 << 20

# Bytes of the identified calls. Other users than root cannot reach half of it: ``Method.max_size`` is small.
MAX_BYTES: Final = 256 << 20


class TooManyCalls(Exception):
    """No slot is free for this call."""


@dataclass(eq=False, slots=True)
class CallSlot:
    """A place of one call. ``uid`` is None until the caller is identified."""

    connection: str
    size: int
    uid: int | None = None


class CallLimits:
    """Hands out slots: ``take`` one, ``identify`` the caller if it was unknown, and always ``leave`` the slot.

    ``take`` and ``identify`` raise ``TooManyCalls``.
    """

    def __init__(self) -> None:
        self._of_connection: Counter[str] = Counter()
        self._of_user: Counter[int] = Counter()
        self._unidentified = 0
        self._bytes_unidentified = 0
        self._bytes = 0

    def take(self, connection: str, size: int, uid: int | None) -> CallSlot:
        if self._of_connection[connection] >= MAX_OF_CONNECTION:
            raise TooManyCalls("too many concurrent calls over one connection")
        slot = CallSlot(connection, size)
        if uid is not None:
            self._begin(slot, uid)
        elif self._unidentified >= MAX_UNIDENTIFIED or self._bytes_unidentified + size > MAX_BYTES_UNIDENTIFIED:
            raise TooManyCalls("too many concurrent calls")
        else:
            self._unidentified += 1
            self._bytes_unidentified += size
        self._of_connection[connection] += 1
        return slot

    def identify(self, slot: CallSlot, uid: int) -> None:
        self._begin(slot, uid)
        self._unidentified -= 1
        self._bytes_unidentified -= slot.size

    def leave(self, slot: CallSlot) -> None:
        if slot.uid is None:
            self._unidentified -= 1
            self._bytes_unidentified -= slot.size
        else:
            self._of_user[slot.uid] -= 1
            self._bytes -= slot.size
        self._of_connection[slot.connection] -= 1
        if not self._of_connection[slot.connection]:
            del self._of_connection[slot.connection]

    def _begin(self, slot: CallSlot, uid: int) -> None:
        every = self._of_user.total()
        others = every - self._of_user[0]
        if uid != 0 and (self._of_user[uid] >= MAX_OF_USER or others >= MAX_CALLS - MAX_RESERVED):
            raise TooManyCalls("too many concurrent calls of users other than root")
        if every >= MAX_CALLS or self._bytes + slot.size > MAX_BYTES:
            raise TooManyCalls("too many concurrent calls")
        self._of_user[uid] += 1
        self._bytes += slot.size
        slot.uid = uid
