# SPDX-License-Identifier: Apache-2.0
"""An rpm-ostreed on the private bus, as far as a client can see; the tests decide what a transaction does.

The model is only as deep as the adapter looks: deployments are dictionaries, staging makes one from the first. What the
real one does with all that is the business of `integration/standins/rpmostreed`.
"""

from __future__ import annotations

import asyncio
import struct
import time
from pathlib import Path
from typing import Any

from dbus_next import Message, Variant

from tests.features.rpmostree.fake_transaction import FakeTransaction, Script
from tests.support.fake_peer import DBusFault, FakePeer
from tests.support.vardict import vardict

NAME = "org.projectatomic.rpmostree1"
OS_PATH = "/org/projectatomic/rpmostree1/fedora_coreos"
BUSY = "org.gtk.GDBus.UnmappedGError.Quark._g_2dio_2derror_2dquark.Code26"
FAILED = "org.gtk.GDBus.UnmappedGError.Quark._g_2dio_2derror_2dquark.Code0"

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
OLD_IMAGE = f"ostree-unverified-registry:quay.io/org/os@sha256:{'0' * 64}"


def plain(value: Any) -> Any:
    if isinstance(value, Variant):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def deployment(checksum: str = A, serial: int = 0, **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": f"fedora-coreos-{checksum}.{serial}",
        "osname": "fedora-coreos",
        "checksum": checksum,
        "serial": serial,
        "booted": False,
        "staged": False,
        "pinned": False,
        "requested-packages": [],
        "requested-base-removals": [],
        "options": "root=LABEL=root quiet",  # not a key of the daemon: what its boot entry has, or will have
    }
    if "origin" not in more:
        values |= {"container-image-reference": OLD_IMAGE, "container-image-reference-digest": OLD_IMAGE[-71:]}
    return values | {key.replace("_", "-"): value for key, value in more.items()}


class FakeRpmOstree(FakePeer):
    """``root`` is where /run of the host is. ``script`` is what the worker of the next transactions does."""

    def __init__(self, root: Path) -> None:
        super().__init__(NAME)
        self.root = root
        self.deployments = [deployment(booted=True), deployment(C, container_image_reference="old")]
        self.policy = "none"
        self.booted_path = OS_PATH
        self.legacy_locks = False  # as before rpm-ostree 2024.6
        self.not_in_base: set[str] = set()  # packages that no base has
        self.not_in_repositories: set[str] = set()
        self.drops_second_lock = False  # the mistake of those with libostree 2023.8 and later
        self.transactions: list[FakeTransaction] = []
        self.requests: list[tuple[str, list[Any]]] = []
        self.script: Script = self.work
        self.prepare: Any = lambda transaction: None
        self._main_loop = asyncio.Lock()
        self._current: FakeTransaction | None = None
        self._request: tuple[str, bytes] | None = None
        self._entries = ""
        self._effects: dict[FakeTransaction, Any] = {}
        (root / "run/ostree").mkdir(parents=True)
        self.on("RegisterClient", lambda m: ("", ()))
        self.on("Reload", self._reload)
        self.on("Get", self._get)
        for member in ("UpdateDeployment", "KernelArgs", "Cleanup", "Rollback"):
            self.on(member, self._begin)

    async def stop(self) -> None:
        for transaction in self.transactions:
            await transaction.close()
        await super().stop()

    # -- what is there --------------------------------------------------------------------------------------------

    @property
    def first(self) -> dict[str, Any]:
        return self.deployments[0]

    @property
    def active(self) -> FakeTransaction | None:
        """Wait until it is over for all clients, not just finished."""
        return self._current if self._current and not self._current.over.is_set() else None

    def _get(self, message: Message) -> Any:
        on = self.active
        return "v", (
            {
                "Booted": lambda: Variant("o", self.booted_path),
                "Deployments": lambda: Variant("aa{sv}", [_variants(d) for d in self.deployments]),
                "AutomaticUpdatePolicy": lambda: Variant("s", self.policy),
                "ActiveTransactionPath": lambda: Variant("s", on.address if on else ""),
                "ActiveTransaction": lambda: Variant("(sss)", ["", "", ""]),
            }[message.body[1]](),
        )

    def _reload(self, message: Message) -> Any:
        self.write_entries()
        return "", ()

    def write_entries(self) -> None:
        """/boot as libostree keeps it, in one instant; of a staged deployment there is nothing."""
        finalized = [d for d in self.deployments if not d["staged"]]
        if (now := repr([(d["id"], d["options"], d.get("entry")) for d in finalized])) == self._entries:
            return
        self._entries = now
        made = self.root / f"boot/loader.{len(now)}.{time.monotonic_ns()}"
        (made / "entries").mkdir(parents=True)
        for version, one in zip(range(len(finalized), 0, -1), finalized, strict=True):
            osname, checksum, serial = one["osname"], one["checksum"], one["serial"]
            link = self.root / f"ostree/boot.1/{osname}/{checksum}/{serial}"
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(f"../../../deploy/{osname}/deploy/{checksum}.{serial}")
            values = {
                "title": "Fake (ostree)",
                "version": str(version),
                "options": f"{one['options']} ostree=/ostree/boot.1/{osname}/{checksum}/{serial}",
                "linux": f"/ostree/{osname}-{checksum}/vmlinuz-6.1",
            }
            text = "".join(f"{key} {value}\n" for key, value in values.items())
            (made / f"entries/ostree-{checksum[:4]}-{serial}.conf").write_text(text + one.get("entry", ""))
        link = made.with_name("link")
        link.symlink_to(made.name)
        link.replace(self.root / "boot/loader")

    # -- transactions ---------------------------------------------------------------------------------------------

    async def _begin(self, message: Message) -> Any:
        async with self._main_loop:  # one call after the other, as in a daemon with one thread for them
            return await self._begin_one(message)

    async def _begin_one(self, message: Message) -> Any:
        request = (message.member, bytes(message._marshall()[-message_body_size(message) :]))
        if on := self.active:
            if request == self._request:
                return "s", (on.address,)
            hint = "You can cancel the current transaction with `rpm-ostree cancel`"
            raise DBusFault(BUSY, f"Transaction in progress: {on.title}\n {hint}")
        self.requests.append((message.member, plain_list(message.body)))
        self._request = request
        transaction = await FakeTransaction(self.root / "run/txn.sock", self.script).listen()
        self._effects[transaction] = message
        self.transactions.append(transaction)
        self._current = transaction
        self.prepare(transaction)
        return "s", (transaction.address,)

    async def work(self, transaction: FakeTransaction) -> None:
        """Does what was asked for, as quickly as can be."""
        await transaction.emit("TaskBegin", "s", "Staging deployment")
        error = self.effect(transaction)
        await transaction.emit("TaskEnd", "s", "done")
        await transaction.finish(not error, error)

    def effect(self, transaction: FakeTransaction) -> str:
        message = self._effects[transaction]
        body = plain_list(message.body)
        match message.member:
            case "UpdateDeployment":
                return self._update(*body)
            case "KernelArgs":
                existing, _, _, _, options = body
                self.stage(options=_patched(existing, options))
            case "Cleanup":
                while not self.first["booted"]:
                    del self.deployments[0]
                (self.root / "run/ostree/staged-deployment").unlink(missing_ok=True)
                (self.root / "run/ostree/staged-deployment-locked").unlink(missing_ok=True)
            case "Rollback":
                self.deployments = [self.deployments[1], self.deployments[0], *self.deployments[2:]]
        return ""

    def _update(self, modifiers: dict[str, Any], options: dict[str, Any]) -> str:
        assert options["lock-finalization"] is True
        changes: dict[str, Any] = {}
        if refspec := modifiers.get("set-refspec"):
            if refspec in (self.first.get("container-image-reference"), self.first.get("origin")):
                return f"Old and new refs are equal: {refspec}"
            if refspec.startswith("ostree-"):
                changes |= {"container-image-reference": refspec, "container-image-reference-digest": refspec[-71:]}
                changes["checksum"] = refspec[-64:]
            else:
                changes["origin"] = refspec
        if revision := modifiers.get("set-revision"):
            changes["checksum"] = revision[-64:]
        missing = [name for name in modifiers.get("override-remove-packages", ()) if name in self.not_in_base]
        if missing:
            return f'Package "{missing[0]}" not found'
        if unknown := self.not_in_repositories & {*modifiers.get("install-packages", ())}:
            return f"Packages not found: {', '.join(sorted(unknown))}"
        packages = set(self.first["requested-packages"]) | set(modifiers.get("install-packages", ()))
        changes["requested-packages"] = sorted(packages - set(modifiers.get("uninstall-packages", ())))
        removed = set(self.first["requested-base-removals"]) | set(modifiers.get("override-remove-packages", ()))
        changes["requested-base-removals"] = sorted(removed - set(modifiers.get("override-reset-packages", ())))
        self.stage(**changes)
        return ""

    def stage(self, *, locked: bool = True, **changes: Any) -> dict[str, Any]:
        """A staged deployment made from the first one, which it replaces if that is staged."""
        made = self.first | {key.replace("_", "-"): value for key, value in changes.items()}
        made |= {"booted": False, "staged": True, "pinned": False}
        made["serial"] = max(d["serial"] for d in self.deployments) + 1
        made["id"] = f"{made['osname']}-{made['checksum']}.{made['serial']}"
        second = self.first["staged"]
        if second:
            del self.deployments[0]
        self.deployments.insert(0, made)
        self.write_state(made, locked=locked and not (second and self.drops_second_lock))
        return made

    def write_state(self, made: dict[str, Any], *, locked: bool) -> None:
        name = f"{made['checksum']}.{made['serial']}"
        state: dict[str, Any] = {"target": {"name": name, "osname": made["osname"], "bootcsum": made["checksum"]}}
        if made["options"] is not None:
            state["kargs"] = made["options"].split()
        if locked and not self.legacy_locks:
            state["locked"] = True
        (self.root / "run/ostree/staged-deployment").write_bytes(vardict(state))
        legacy = self.root / "run/ostree/staged-deployment-locked"
        legacy.touch() if locked and self.legacy_locks else legacy.unlink(missing_ok=True)

    async def die(self) -> None:
        """End the daemon without a signal. Another one is there at once."""
        on, self._current = self._current, None
        if on is not None:
            await on.close()


def _patched(existing: str, options: dict[str, Any]) -> str:
    """Appends first, then deletes, each from what was sent along."""
    if "final-kernel-args" in options:
        return str(options["final-kernel-args"])
    tokens = existing.split()
    tokens += [t for t in options.get("append-if-missing", ()) if t not in tokens]
    for token in options.get("delete-if-present", ()):
        if token in existing.split():
            tokens.remove(token)
    return " ".join(tokens)


def plain_list(body: Any) -> list[Any]:
    return [plain(item) for item in body]


def message_body_size(message: Message) -> int:
    return int(struct.unpack_from("<I", message._marshall(), 4)[0])


def _variants(values: dict[str, Any]) -> dict[str, Variant]:
    kinds = {bool: "b", int: "i", str: "s", list: "as"}
    return {key: Variant(kinds[type(value)], value) for key, value in values.items() if key not in ("options", "entry")}


# -- GVariant, written from its specification -------------------------------------------------------------------------


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)
