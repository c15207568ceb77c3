# SPDX-License-Identifier: Apache-2.0
"""How the entries of a plan differ: line counts, modes, owners, states of units, arguments, images, keys.

No value is a secret: SSH keys are fingerprints, certificates are subject and expiry, a password is only "changed",
other texts are redacted. The lines of a file that other users cannot read are counted, and its certificates named, for
``private`` plans only, because counts show whether a guessed line is in the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from nodeagent.core.config.fetched import digest_at, without_query
from nodeagent.core.config.file_tree import Directory, FileTreeEntry, RegularFile, SymbolicLink, expand, node_of
from nodeagent.core.config.kargs import HUGE_PAGES, members
from nodeagent.core.config.machineconfig import LinkEntry, MachineConfig, StorageEntry, UnitEntry, UserEntry
from nodeagent.core.config.paths import dropin_path, ssh_keys_path, unit_path
from nodeagent.core.plan.change import Change, ChangeKind, Detail, Plan
from nodeagent.core.redact import redact
from nodeagent.core.validate import ssh_key
from nodeagent.core.validate.certificates import certificates

# Entries of the host at paths where it differs from the old config, or that the old config does not manage.
Disk = Mapping[str, FileTreeEntry]

NO_DISK: Final[Disk] = {}

# Details of one change: a user can have many keys, a config many kernel arguments.
MAX_DETAILS: Final = 50
# Certificates of one change: a bundle may have hundreds.
MAX_CERTIFICATES: Final = 10
# Bytes of a file that decide whether it is text, as in git.
SNIFFED: Final = 8000
READ_BY_OTHERS: Final = 0o004
DEFAULT_MODE: Final = 0o644


def with_values(
    plan: Plan,
    old: MachineConfig,
    new: MachineConfig,
    disk: Disk | None = None,
    restored: Disk = NO_DISK,
    *,
    private: bool = False,
    most: int | None = None,
) -> Plan:
    """Return ``plan`` with the details of its changes, or of the first ``most``. Takes linear time.

    ``restored`` has the entries of the host that come back at paths which leave the config.
    """
    contents = disk or {}
    described = tuple(
        replace(planned, details=_limited([*_details(planned.change, old, new, contents, restored, private=private)]))
        for planned in plan.changes[:most]
    )
    return replace(plan, changes=(*described, *plan.changes[len(described) :]))


def binary(content: bytes) -> bool:
    return b"\0" in content[:SNIFFED]


def _limited(details: Sequence[Detail]) -> tuple[Detail, ...]:
    if len(details) <= MAX_DETAILS:
        return tuple(details)
    return (*details[:MAX_DETAILS], Detail("more", after=f"{len(details) - MAX_DETAILS} more"))


def _origin(change: Change, old: MachineConfig, new: MachineConfig) -> Iterator[Detail]:
    """Yield the MachineConfigs that the entry comes from, if they were merged on this host."""
    before, after = (", ".join(config.origins.get(change.id, ())) for config in (old, new))
    if before or after:
        yield Detail("from", "" if before == after else before, after)


def _details(
    change: Change, old: MachineConfig, new: MachineConfig, disk: Disk, restored: Disk, *, private: bool
) -> Iterator[Detail]:
    yield from _origin(change, old, new)
    match change.domain:
        case "file":
            was, now = _on_host(old.storage, change.key, disk), _on_host(new.storage, change.key, NO_DISK)
            now = restored.get(change.key) if change.key not in new.storage else now
            if isinstance(now, Directory) or (isinstance(was, Directory) and now is None):
                yield from _directory(was, now)
            elif isinstance(now, SymbolicLink) or (isinstance(was, SymbolicLink) and now is None):
                yield from _link(was, now)
                yield from _address(old.links.get(change.key), new.links.get(change.key))
            else:
                yield from _file(was, now, private=private)
            if change.key not in old.storage and change.key in disk and not isinstance(now, Directory):
                yield Detail("replaces", after="a file of the host")
            if change.key not in new.storage and change.key in restored:
                yield Detail("restores", after="the host's own version")
        case "unit":
            yield from _unit(old.units.get(change.key), new.units.get(change.key), change.key, disk, restored)
        case "sshkey":
            yield from _ssh_keys(change.key, old, new, disk, restored)
        case "password":
            yield Detail("password", after=_password(change.key, old, new))
        case "user":
            sides = [config.users.get(change.key, UserEntry("")).groups for config in (old, new)]
            yield from _listed("group", sides[0], sides[1])
            if change.kind is ChangeKind.REMOVED:
                yield Detail("removed", after="it expires if nodeagent created it; home and uid stay")
        case "kernelArguments":
            before, after = _with_absent(old, new), _with_absent(new, old)
            if members(before, HUGE_PAGES) != members(after, HUGE_PAGES):
                before, after = _with_sizes(before), _with_sizes(after)
            yield from _listed("argument", before, after)
        case "extensions":
            yield from _listed("extension", old.extensions, new.extensions)
        case "osImageURL":
            yield Detail("image", redact(old.os_image_url), redact(new.os_image_url))
        case "baseOSExtensionsContainerImage":
            yield Detail("image", redact(old.extensions_image), redact(new.extensions_image))
        case "kernelType":
            yield Detail("kernel", old.kernel_type, new.kernel_type)
        case "fips":
            yield Detail("fips", _switch(on=old.fips), _switch(on=new.fips))
        case _:
            pass


def _switch(*, on: bool) -> str:
    return "on" if on else "off"


def _on_host(entries: Mapping[str, StorageEntry], path: str, disk: Disk) -> FileTreeEntry | None:
    return disk.get(path) if path in disk or path not in entries else node_of(entries[path])


def _type(entry: FileTreeEntry | None) -> str:
    match entry:
        case None:
            return ""
        case RegularFile():
            return "file"
        case Directory():
            return "directory"
        case SymbolicLink():
            # What is fetched is a link to where it is kept, which says no more than the digest.
            return f"image {digest}" if (digest := digest_at(entry.target)) else f"link to {entry.target}"


def _link(was: FileTreeEntry | None, now: FileTreeEntry | None) -> Iterator[Detail]:
    if _type(was) != _type(now):
        yield Detail("type", _type(was), _type(now))
    owners = ["0:0" if entry is None else _owner(entry) for entry in (was, now)]
    if now is not None and owners[0] != owners[1] and (was is None or _comparable(was, now)):
        yield Detail("owner", owners[0] if was else "", owners[1])


def _address(was: LinkEntry | None, now: LinkEntry | None) -> Iterator[Detail]:
    """Yield where an image comes from. The query of an address may be a token."""
    before, after = ("" if link is None else without_query(link.source) for link in (was, now))
    if after and before != after:
        yield Detail("address", before, after)


def _directory(was: FileTreeEntry | None, now: FileTreeEntry | None) -> Iterator[Detail]:
    """What a directory does not name stays, and is no difference."""
    if _type(was) != _type(now):
        # Only an empty one is removed.
        yield Detail("type", _type(was), _type(now) or ("not managed" if was else ""))
    before = was if isinstance(was, Directory) else Directory()
    after = now if isinstance(now, Directory) else Directory()
    if after.mode is not None and after.mode != before.mode:
        yield Detail("mode", "" if before.mode is None else f"{before.mode:04o}", f"{after.mode:04o}")
    for what, first, second in (("owner", before.user, after.user), ("group", before.group, after.group)):
        if second is not None and first != second:
            yield Detail(what, "" if first is None else str(first), str(second))


def _file(was: FileTreeEntry | None, now: FileTreeEntry | None, *, private: bool) -> Iterator[Detail]:
    # A file takes the place of the link. Nothing is written through it.
    if was is not None and not isinstance(was, RegularFile):
        yield Detail("type", _type(was), "file")
        was = None
    now = now if isinstance(now, RegularFile) else None
    if was is None or now is None or was.content != now.content:
        shown = private or all(side is None or side.mode & READ_BY_OTHERS for side in (was, now))
        contents = [None if side is None else side.content for side in (was, now)]
        yield _content("content", contents[0], contents[1], counted=shown)
        if shown:
            yield from _certificates(contents[0] or b"", contents[1] or b"")
    if now is None:
        return
    # Of a new file, only what is unusual is worth a line.
    mode, owner = (was.mode, _owner(was)) if was else (DEFAULT_MODE, "0:0")
    if now.mode != mode:
        yield Detail("mode", f"{mode:04o}" if was else "", f"{now.mode:04o}")
    if _owner(now) != owner and (was is None or _comparable(was, now)):
        yield Detail("owner", owner if was else "", _owner(now))


def _certificates(was: bytes, now: bytes) -> Iterator[Detail]:
    """Yield the certificates of which only one side has the bytes, those that are added first."""
    after, before = (dict.fromkeys(map(str, side)) for side in (certificates(now, was), certificates(was, now)))
    details = [Detail("certificate", after=text) for text in after if text not in before]
    details += [Detail("certificate", before=text) for text in before if text not in after]
    yield from details[:MAX_CERTIFICATES]
    if (more := len(details) - MAX_CERTIFICATES) > 0:
        yield Detail("certificates", after=f"{more} more")


def _owner(entry: FileTreeEntry) -> str:
    return f"{entry.user}:{entry.group}"


def _comparable(was: FileTreeEntry, now: FileTreeEntry) -> bool:
    """Return whether the owners have the same form."""
    # Only the host knows the number of a name, and this plan may be made elsewhere.
    pairs = ((was.user, now.user), (was.group, now.group))
    return all(a == b or type(a) is type(b) for a, b in pairs)


def _content(what: str, was: bytes | None, now: bytes | None, *, counted: bool = True) -> Detail:
    before, after = was or b"", now or b""
    if not counted:
        return Detail(what)
    if binary(before) or binary(after):
        sizes = ["" if side is None else f"binary, {len(side)} bytes" for side in (was, now)]
        return Detail(what, sizes[0], sizes[1])
    # Counting takes linear time. The shortest diff takes quadratic time in the worst case, and the daemon makes this
    # for each plan.
    lines, others = Counter(before.splitlines()), Counter(after.splitlines())
    added, removed = (others - lines).total(), (lines - others).total()
    if not added and not removed:
        return Detail(what, after="empty" if not (before or after) else "other line endings or another order of lines")
    return Detail(what, added=added, removed=removed)


def _unit(was: UnitEntry | None, now: UnitEntry | None, name: str, disk: Disk, restored: Disk) -> Iterator[Detail]:
    states = ["" if unit is None else _state(unit) for unit in (was, now)]
    if states[0] != states[1]:
        yield Detail("state", states[0], states[1])
    texts = [_text(unit.contents) if unit else None for unit in (was, now)]
    path = unit_path(name)
    if isinstance(there := disk.get(path), RegularFile):
        texts[0] = there.content
    back = restored.get(path)
    if texts[1] is None and isinstance(back, RegularFile):
        texts[1] = back.content
    if texts[0] != texts[1]:
        yield _content("content", texts[0], texts[1])
    before, after = (unit.dropins if unit else {} for unit in (was, now))
    for dropin in sorted({*before, *after}):
        there = disk.get(dropin_path(name, dropin))
        first = there.content if isinstance(there, RegularFile) else _text(before.get(dropin))
        own = restored.get(dropin_path(name, dropin))
        second = own.content if isinstance(own, RegularFile) else _text(after.get(dropin))
        if first != second:
            yield _content(f"drop-in {dropin}", first, second)
    added = [dropin_path(name, dropin) for dropin in after if dropin not in before]
    if not disk.keys().isdisjoint(added) or (was is None and path in disk):
        yield Detail("replaces", after="a file of the host")
    if path in restored or any(dropin_path(name, dropin) in restored for dropin in before):
        yield Detail("restores", after="the host's own version")
    elif was is not None and was.contents is not None and now is None and not was.mask:
        yield Detail("removed", after="its file is removed, and it is stopped unless the host reboots")


def _text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _state(unit: UnitEntry) -> str:
    if unit.mask:
        return "masked"
    return {None: "as the preset says", True: "enabled", False: "disabled"}[unit.enabled]


def _ssh_keys(name: str, old: MachineConfig, new: MachineConfig, disk: Disk, restored: Disk) -> Iterator[Detail]:
    sides = []
    path = next(ssh_keys_path(name, config.users[name].home) for config in (new, old) if name in config.users)
    for config in (old, new):
        user = config.users.get(name)
        # By way of the file that is written, because the side of the host is such a file.
        entry = expand(MachineConfig("", users={name: user})).get(path) if user else None
        sides.append(entry.content if isinstance(entry, RegularFile) else b"")
    if isinstance(there := disk.get(path), RegularFile):
        sides[0] = there.content
    if isinstance(back := restored.get(path), RegularFile):
        sides[1] = back.content
        yield Detail("restores", after="the host's own keys")
    lines = [[line for line in side.decode(errors="replace").splitlines() if line.strip()] for side in sides]
    names = [[ssh_key.fingerprint(line) or "a line without a key" for line in side] for side in lines]
    details = [*_listed("key", names[0], names[1])]
    yield from details or [Detail("key", after="options or comments of a key change")]


def _password(name: str, old: MachineConfig, new: MachineConfig) -> str:
    before, after = (user and user.password_hash for user in (old.users.get(name), new.users.get(name)))
    if before is None:
        return "set"
    return "no longer managed" if after is None else "changed"


def _with_absent(config: MachineConfig, other: MachineConfig) -> tuple[str, ...]:
    """Return the kernel arguments that a host with ``config`` has, among them those that only ``other`` takes away."""
    taken = (token for token in other.absent_arguments if token not in config.named_arguments)
    return (*config.kernel_arguments, *taken)


def _with_sizes(tokens: Sequence[str]) -> tuple[str, ...]:
    """Return kernel arguments with those of huge pages as one: alone, hugepages=8 does not say of which size."""
    pages = members(tokens, HUGE_PAGES)
    others = tuple(token for token in tokens if token not in pages)
    return (*others, " ".join(pages)) if pages else others


def _listed(what: str, before: Sequence[str], after: Sequence[str]) -> Iterator[Detail]:
    was, now = Counter(before), Counter(after)
    for value in (was - now).elements():
        yield Detail(what, before=_shown(what, value))
    for value in (now - was).elements():
        yield Detail(what, after=_shown(what, value))
    if was == now and before != after:
        yield Detail("order", after="another order of the same values")


def _shown(what: str, value: str) -> str:
    """Redact a value. A fingerprint looks like a credential and is none."""
    return value if what == "key" else redact(value)
