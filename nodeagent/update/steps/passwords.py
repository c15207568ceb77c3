# SPDX-License-Identifier: Apache-2.0
"""Set and lock the passwords of users; a revert puts the previous hash back."""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.core.plan.steps import LockUser, SetPassword
from nodeagent.update.ports.store import Snapshot
from nodeagent.update.run import Ports, Update


@dataclass(slots=True)
class Passwords:
    ports: Ports
    update: Update

    async def snapshot(self, key: str) -> Snapshot:
        user = key.partition(":")[2]
        return Snapshot(key, text=await self.ports.users.password_hash(user) or "")

    async def do(self, step: SetPassword | LockUser) -> None:
        match step:
            case SetPassword(user):
                # "!" is the hash of a locked password, for a user whose config has none.
                await self.ports.users.set_password_hash(user, self.update.new.users[user].password_hash or "!")
            case LockUser(user):
                await self.ports.users.lock(user)

    async def undo(self, snapshot: Snapshot) -> None:
        user = snapshot.key.partition(":")[2]
        # An account that had no password before stays locked: an empty hash would let every user in.
        if not snapshot.text:
            await self.ports.users.lock(user)
        elif await self.ports.users.password_hash(user) != snapshot.text:
            await self.ports.users.set_password_hash(user, snapshot.text)
