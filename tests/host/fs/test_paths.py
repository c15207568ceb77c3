# SPDX-License-Identifier: Apache-2.0
"""Links on the way: those of the host are followed, those of others never, at no component and in no race."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile, SymbolicLink
from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.host.fs import atomic, paths
from nodeagent.host.fs.files import DiskFiles
from nodeagent.host.fs.selinux import Labels
from tests.support.disk import exchange, needs_root, temps, tree

CORE = 1000
NODE = RegularFile(b"key\n", 0o600, os.geteuid(), os.getegid(), dir_mode=0o700, dir_owner=os.geteuid())
KEYS = "/home/core/.ssh/authorized_keys.d/ignition"


def disk(root: Path) -> DiskFiles:
    return DiskFiles(str(root), labels=Labels(enabled=False))


@pytest.mark.parametrize(
    ("links", "path", "real"),
    [
        ({"home": "var/home"}, "/home/core/x", "var/home/core/x"),
        ({"root": "var/roothome"}, "/root/x", "var/roothome/x"),
        ({"usr/local": "../var/usrlocal"}, "/usr/local/bin/x", "var/usrlocal/bin/x"),
        ({"usr/local": "/var/usrlocal"}, "/usr/local/bin/x", "var/usrlocal/bin/x"),
        ({"opt": "var/opt", "var/opt": "../var/other/"}, "/opt/x", "var/other/x"),
        ({"bin": "usr/bin", "lib64": "./usr//lib64/."}, "/lib64/x", "usr/lib64/x"),
        # As in a chroot: above the root is the root.
        ({"mnt": "../../../var/mnt"}, "/mnt/x", "var/mnt/x"),
    ],
)
def test_links_of_an_immutable_host(tmp_path: Path, links: dict[str, str], path: str, real: str) -> None:
    for name, target in links.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(target)
    (tmp_path / "var").mkdir(exist_ok=True)
    made = disk(tmp_path).install(path, NODE)
    assert (tmp_path / real).read_bytes() == NODE.content
    assert not (tmp_path / real).is_symlink()
    assert all(f"{real}/".startswith(place[1:] + "/") for place in made)
    assert disk(tmp_path).differs(path, NODE) == ""
    disk(tmp_path).remove(path, made)
    assert not (tmp_path / real).exists()


@pytest.mark.parametrize("target", ["x", "/x", "y/../x", "./x"])
def test_a_link_to_itself_ends(tmp_path: Path, target: str) -> None:
    (tmp_path / "y").mkdir()
    (tmp_path / "x").symlink_to(target)
    with pytest.raises(Terminal, match="too many links") as caught:
        disk(tmp_path).install("/x/file", NODE)
    assert caught.value.reason == "LinkRefused"


def test_many_links_that_multiply_end(tmp_path: Path) -> None:
    (tmp_path / "l30").mkdir()
    for i in range(30):
        (tmp_path / f"l{i}").symlink_to(f"l{i + 1}/../" * 40)
    with pytest.raises(Terminal, match="too many links"):
        disk(tmp_path).install("/l0/file", NODE)


@contextmanager
def a_host(root: Path) -> Iterator[Path]:
    """The host is below ``root/host``; what an attacker aims at is beside it. Nothing of that may change."""
    host, aim = root / "host", root / "aim"
    home = host / "var/home/core"
    (home / ".ssh/authorized_keys.d").mkdir(parents=True)
    (home / ".ssh/authorized_keys.d/ignition").write_text("old\n")
    (host / "home").symlink_to("var/home")
    for place in (aim, host / "etc"):
        place.mkdir()
        (place / "ignition").write_text("precious")
        (place / "authorized_keys.d").mkdir()
        (place / "authorized_keys.d/ignition").write_text("precious")
    for place, _, names in os.walk(home):
        os.chown(place, CORE, CORE)
        for name in names:
            os.chown(Path(place) / name, CORE, CORE)
    before = tree(aim), tree(host / "etc")
    yield host
    assert (tree(aim), tree(host / "etc")) == before
    assert temps(root) == []


@needs_root
@pytest.mark.parametrize("target", ["/etc", "../../../etc", "../../../../aim", "/proc/self/root"])
@pytest.mark.parametrize("component", [".ssh", ".ssh/authorized_keys.d"])
@pytest.mark.parametrize("owner", [0, CORE])
def test_a_link_in_a_directory_of_a_user(tmp_path: Path, component: str, target: str, owner: int) -> None:
    """Even one that belongs to root: a user can hard-link or rename those into place."""
    with a_host(tmp_path) as host:
        place = host / "var/home/core" / component
        place.rename(place.with_name("aside"))
        place.symlink_to(target)
        os.lchown(place, owner, owner)
        there = disk(host)
        calls: list[Callable[[], object]] = [
            lambda: there.install(KEYS, NODE),
            lambda: there.capture(KEYS),
            lambda: there.remove(KEYS, [f"/var/home/core/{component}"]),
        ]
        for call in calls:
            with pytest.raises(Terminal, match=component) as caught:
                call()
            assert caught.value.reason == "LinkRefused"
        assert "not followed" in there.differs(KEYS, NODE)
        assert there.sweep([KEYS]) == []
        assert place.is_symlink()


@needs_root
def test_a_link_at_the_end_is_replaced(tmp_path: Path) -> None:
    with a_host(tmp_path) as host:
        place = host / "var/home/core/.ssh/authorized_keys.d/ignition"
        place.unlink()
        place.symlink_to("/etc/ignition")
        disk(host).install(KEYS, NODE)
        assert not place.is_symlink()
        assert place.read_bytes() == NODE.content


@needs_root
@pytest.mark.parametrize(
    ("mode", "uid", "link_uid"),
    [(0o755, 0, CORE), (0o755, CORE, 0), (0o777, 0, 0), (0o1777, 0, 0), (0o775, 0, 0)],
)
def test_only_what_root_alone_could_make_is_followed(tmp_path: Path, mode: int, uid: int, link_uid: int) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "etc").mkdir()
    (tmp_path / "shared/link").symlink_to("/etc")
    os.lchown(tmp_path / "shared/link", link_uid, link_uid)
    os.chown(tmp_path / "shared", uid, uid)
    (tmp_path / "shared").chmod(mode)
    with pytest.raises(Terminal) as caught:
        disk(tmp_path).install("/shared/link/x", NODE)
    assert caught.value.reason == "LinkRefused"
    assert list((tmp_path / "etc").iterdir()) == []


@needs_root
def test_a_directory_of_root_inside_one_of_a_user_is_not_trusted(tmp_path: Path) -> None:
    """The user can have moved it there, with the link that root once made in it."""
    (tmp_path / "core/roots").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "core/roots/link").symlink_to("/etc")
    os.chown(tmp_path / "core", CORE, CORE)
    with pytest.raises(Terminal, match="users other than root can write in its directory"):
        disk(tmp_path).install("/core/roots/link/x", NODE)


def _swap_forever(place: Path, target: str, stop: threading.Event) -> None:
    """The directory and a link change places under one name, which is never free."""
    link = place.with_name("link")
    link.symlink_to(target)
    while not stop.is_set():
        exchange(place, link)
        time.sleep(0)  # one core: let the other side have its turn in either state
    if place.is_symlink():
        exchange(place, link)


@needs_root
@pytest.mark.parametrize("component", [".ssh", ".ssh/authorized_keys.d"])
def test_a_component_swapped_in_a_race(tmp_path: Path, component: str) -> None:
    with a_host(tmp_path) as host:
        place = host / "var/home/core" / component
        there, stop = disk(host), threading.Event()
        made = ["/var/home/core/.ssh/authorized_keys.d"] if component == ".ssh" else []
        node = RegularFile(b"key\n", 0o600, CORE, CORE, dir_mode=0o700, dir_owner=CORE)
        attack = threading.Thread(target=_swap_forever, args=(place, "/etc", stop))
        attack.start()
        outcomes: set[str] = set()
        try:
            for _ in range(400):
                try:
                    there.install(KEYS, node)
                    outcomes.add("done")
                except AgentError as error:
                    outcomes.add(error.reason)
                with suppress(AgentError):
                    there.remove(KEYS, made)
        finally:
            stop.set()
            attack.join()
        assert {"done", "LinkRefused"} <= outcomes <= {"done", "LinkRefused", "PathChanged"}
        # Everything below is still the user's: nothing of root's was made where the user could have used it.
        owners = {path.lstat().st_uid for path in (host / "var/home/core").rglob("*") if not path.is_symlink()}
        assert owners <= {CORE}


@needs_root
def test_our_temporary_file_swapped_in_a_race(tmp_path: Path) -> None:
    """The user swaps every file that appears for a hard link to something of root: its owner and mode stay."""
    home, aim = tmp_path / "core", tmp_path / "shadow"
    home.mkdir()
    os.chown(home, CORE, CORE)
    aim.write_text("precious")
    aim.chmod(0o640)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for name in os.listdir(home):
                with suppress(OSError):
                    os.unlink(home / name)
                    os.link(aim, home / name)

    attack = threading.Thread(target=swap)
    attack.start()
    outcomes: set[str] = set()
    node = RegularFile(b"x" * 4096, 0o666, CORE, CORE)
    try:
        for count in range(300):
            try:
                disk(tmp_path).install("/core/x" if count % 2 else "/core/d/x", node)
                outcomes.add("done")
            except AgentError as error:
                outcomes.add(error.reason)
    finally:
        stop.set()
        attack.join()
    info = aim.stat()
    assert (info.st_uid, oct(info.st_mode), aim.read_text()) == (0, "0o100640", "precious")
    assert outcomes <= {"done", "PathChanged", "NotADirectory", "LinkRefused"}


class Meddler:
    """The ``os`` of a module, with another process that acts right after a call: a race that is always lost."""

    def __init__(self, call: str, act: Callable[..., None]) -> None:
        self._call, self._act = call, act

    def __getattr__(self, name: str) -> object:
        real = getattr(os, name)
        if name != self._call:
            return real

        def meddled(*args: object, **kwargs: object) -> object:
            result = real(*args, **kwargs)
            self._act(*args)
            return result

        return meddled


@needs_root
@pytest.mark.parametrize("component", [".ssh", ".ssh/authorized_keys.d"])
def test_swapped_between_the_look_and_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, component: str
) -> None:
    with a_host(tmp_path) as host:
        place = host / "var/home/core" / component

        def swap(name: str, *_: object) -> None:
            if name == place.name and not place.is_symlink():
                place.rename(place.with_name("aside"))
                place.symlink_to("/etc")

        monkeypatch.setattr(paths, "os", Meddler("stat", swap))
        with pytest.raises(Terminal, match="replaced") as caught:
            disk(host).install(KEYS, NODE)
        assert caught.value.reason == "LinkRefused"


@needs_root
@pytest.mark.parametrize("other", ["link to a directory of root", "directory of root with something in it", "own"])
def test_a_new_directory_swapped_before_it_is_given_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """An entry in the user's home, under the temporary name, must be the one that was made."""
    with a_host(tmp_path) as host:
        home = host / "var/home/core"
        (home / "roots").mkdir(mode=0o700)
        (home / "roots/secret").write_text("precious")
        (home / "own").mkdir()
        os.chown(home / "own", CORE, CORE)

        def swap(name: str, *_: object) -> None:
            (home / name).rename(home / "taken")
            if other.startswith("link"):
                (home / name).symlink_to("roots")
            elif other == "own":
                (home / "own").rename(home / name)
            else:
                (home / "roots").rename(home / name)

        monkeypatch.setattr(atomic, "os", Meddler("mkdir", swap))
        node = RegularFile(b"key\n", 0o600, CORE, CORE, dir_mode=0o755, dir_owner=CORE)
        with pytest.raises(AgentError) as caught:
            disk(host).install("/home/core/new/x", node)
        assert caught.value.reason in ("PathChanged", "NotADirectory", "LinkRefused")
        secrets = list(home.rglob("secret"))
        assert [(path.parent.stat().st_uid, oct(path.parent.stat().st_mode)) for path in secrets] == [(0, "0o40700")]
        for left in home.glob(".nodeagent-*"):  # what the user put there is the user's to remove
            os.rename(left, home / "left")


@needs_root
@pytest.mark.parametrize("node", [NODE, SymbolicLink("x", CORE, CORE)])
def test_our_temporary_file_swapped_before_it_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: FileTreeEntry
) -> None:
    with a_host(tmp_path) as host:
        aim = host / "etc/ignition"

        def swap(*args: object) -> None:
            name = next(str(one) for one in args if str(one).startswith(".nodeagent-"))
            (host / "var/home/core" / name).unlink()
            os.link(aim, host / "var/home/core" / name)

        monkeypatch.setattr(atomic, "os", Meddler("symlink" if isinstance(node, SymbolicLink) else "open", swap))
        with pytest.raises(Retryable) as caught:
            disk(host).install("/home/core/x", node)
        assert caught.value.reason == "PathChanged"
