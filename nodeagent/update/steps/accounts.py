# SPDX-License-Identifier: Apache-2.0
"""Create the accounts of a config, and retire those that leave; add them to groups.

No account is deleted, in a revert neither: its files would get another owner with the next account of that number. One
that this agent created expires, so that no login works, and works again as soon as a config has it. The adapter marks
one whose creation was not finished as expired, so an undo leaves it, and creates it again with the next ``create``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nodeagent.core.plan.steps import AccountStep, CreateUser, JoinGroup, LeaveGroup, RetireUser
from nodeagent.errors import Problem, Refused
from nodeagent.reasons import Reason
from nodeagent.update.ports.store import Snapshot
from nodeagent.update.run import Ports, Update

# What a snapshot says of an account that works, and of a membership. An account that is missing or retired has "".
PRESENT: Final = "present"


def key_of_account(step: AccountStep) -> str:
    match step:
        case CreateUser(user) | RetireUser(user):
            return f"user:{user}"
        case JoinGroup(membership) | LeaveGroup(membership):
            return f"member:{membership}"


async def check_accounts(ports: Ports, update: Update) -> None:
    """Raise ``Refused`` (``UserBlocked``) for an account that cannot be created, or is not the one that is meant."""
    # An account that stays as it is was judged when it came.
    steps = [step for step in update.writes if isinstance(step, CreateUser | JoinGroup)]
    names = {key_of_account(step).split(":")[1] for step in steps}
    problems = [
        Problem(f"user:{name}", problem)
        for name in sorted(names)
        if (problem := await ports.users.problem(update.new.users[name]))
    ]
    if problems:
        text = f"{len(problems)} users cannot be managed on this host"
        raise Refused(text, reason=Reason.USER_BLOCKED, problems=problems)


@dataclass(slots=True)
class Accounts:
    ports: Ports
    update: Update

    async def snapshot(self, key: str) -> Snapshot:
        kind, _, name = key.partition(":")
        user, _, group = name.partition(":")
        account = await self.ports.users.account(user)
        if kind == "user":
            there = account is not None and not account.expired
        else:
            there = account is not None and group in account.groups
        return Snapshot(key, text=PRESENT if there else "")

    async def do(self, step: AccountStep) -> None:
        users = self.ports.users
        match step:
            case CreateUser(user):
                await users.create(self.update.new.users[user])
            case RetireUser(user):
                # Without an original, the config found the account when the agent took it over.
                original = await self.ports.store.original(key_of_account(step))
                if original is not None and original.text != PRESENT:
                    await users.retire(user)
            case JoinGroup(membership):
                await self._set_member(membership, member=True)
            case LeaveGroup(membership):
                original = await self.ports.store.original(key_of_account(step))
                if original is None or original.text != PRESENT:
                    await self._set_member(membership, member=False)

    async def undo(self, snapshot: Snapshot) -> None:
        kind, _, name = snapshot.key.partition(":")
        there = snapshot.text == PRESENT
        if kind == "member":
            await self._set_member(name, member=there)
        elif there:
            await self.ports.users.reinstate(name)
        else:
            await self.ports.users.retire(name)

    async def _set_member(self, membership: str, *, member: bool) -> None:
        user, _, group = membership.partition(":")
        account = await self.ports.users.account(user)
        # A killed update may not have come as far as the account.
        if account is not None and (group in account.groups) != member:
            await self.ports.users.set_member(user, group, member=member)
