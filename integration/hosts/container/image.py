# SPDX-License-Identifier: Apache-2.0
"""Images of test hosts: stacks of cached, read-only directory layers.

A layer is known by the content of what it was made from, is built under another name and renamed when complete, and
is locked (shared while in use, exclusively while built or pruned), so that parallel runs neither collide nor see half
of one. The cache is `$XDG_CACHE_HOME/nodeagent/host` or `~/.cache/nodeagent/host`.

    python -m integration.hosts.container.image      builds the base image and says how long each step took
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from integration.hosts import overlay, requirements
from integration.hosts.container import apt, recipe
from integration.hosts.process import run
from integration.hosts.requirements import Say
from integration.hosts.sources import code

GUEST_TREE = Path(__file__).parent / "guest"
GUEST_UNITS = (
    "crio.service",
    "kubelet.service",
    "coreos-update-ca-trust.service",
    "reloadable.service",
    "flaky.service",
)
UNUSED_DAYS = 2.0  # a layer of an older recipe or package is kept this long for other checkouts, then pruned
UNFINISHED = ".unfinished"  # the suffix of a layer that is being built
KEPT = 6  # of a kind at most, besides those in use: on a day of many changes each of them makes new layers


@dataclass(frozen=True, slots=True)
class Layer:
    path: Path
    lock: TextIO  # open for as long as the layer is in use: closing it gives the layer free for pruning


@dataclass(frozen=True, slots=True)
class Image:
    layers: tuple[Layer, ...]  # bottom first

    @property
    def paths(self) -> list[Path]:
        return [layer.path for layer in self.layers]

    def close(self) -> None:
        for layer in self.layers:
            layer.lock.close()


def cache_directory() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "nodeagent" / "host"


def base_image(say: Say, *, unstable: bool = False, foreign: str | None = None) -> Image:
    """The operating system with the stand-in units of `guest/`. Raises Unavailable where no host can be booted.

    `unstable` is Debian sid, as it was on the day when the layer was made. `foreign` is Debian's name of another
    architecture, whose programs run here (`integration.hosts.emulation`).
    """
    requirements.ensure(say, build=False)
    architecture = foreign or recipe.architecture()
    key = digest(code(recipe.__file__), architecture.encode(), *([code(apt.__file__)] if unstable else []))
    if unstable:
        system = layer("sid", key, lambda path: _build_unstable(path, say))
    elif foreign is not None:
        system = layer(f"system-{foreign}", key, lambda path: _build_foreign(path, foreign, say))
    else:
        system = layer("system", key, lambda path: _build_system(path, say))
    guest = layer(
        "guest",
        digest(key.encode(), tree_digest(GUEST_TREE), " ".join(GUEST_UNITS).encode()),
        lambda path: overlay.fill([system.path], path, _install_guest),
    )
    return Image((system, guest))


def derived_image(image: Image, kind: str, source: bytes, change: Callable[[Path], None]) -> Image:
    """`image` with one more layer, made by `change` on the merged root unless there is one made from this `source`."""
    key = digest(source, *(path.name.encode() for path in image.paths))
    return Image((*image.layers, layer(kind, key, lambda path: overlay.fill(image.paths, path, change))))


def _build_system(path: Path, say: Say) -> None:
    requirements.ensure(say, build=True)
    say(f"building the base image of the test hosts ({recipe.SUITE}), about half a minute, once")
    started = time.monotonic()
    recipe.build(path, _mirrors(), apt.options())
    say(f"base image built in {time.monotonic() - started:.0f} s")


def _build_foreign(path: Path, architecture: str, say: Say) -> None:
    requirements.ensure(say, build=True)
    say(f"building the base image for {architecture}, some minutes, once")
    started = time.monotonic()
    # Without the check, which wants one more program and the handler under the name that Debian gives it.
    recipe.build(path, [f"--architectures={architecture}", "--skip=check/qemu", *_mirrors()], apt.options())
    say(f"base image for {architecture} built in {time.monotonic() - started:.0f} s")


def _mirrors() -> list[str]:
    # mmdebstrap brings apt to Fedora, with no archive of Debian in its settings.
    return apt.mirrors() if requirements.distribution() == "debian" else []


def _build_unstable(path: Path, say: Say) -> None:
    requirements.ensure(say, build=True)
    say("building the base image of the hosts with Debian sid, about a minute, once")
    started = time.monotonic()
    keyring = apt.unstable_keyring()
    recipe.build(path, apt.unstable(keyring), apt.options(), recipe.UNSTABLE)
    # The line with the archive names it, and the image has the keys of its own release only.
    kept = path / str(keyring).lstrip("/")
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(keyring, kept)
    say(f"base image with Debian sid built in {time.monotonic() - started:.0f} s")


def _install_guest(root: Path) -> None:
    for source in sorted(GUEST_TREE.rglob("*")):
        target = root / source.relative_to(GUEST_TREE)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.is_dir():
            if not target.is_dir():
                target.mkdir(mode=0o755)
        else:
            shutil.copyfile(source, target)
            # Modes as in a fresh clone, whatever the umask of this one was.
            target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
    run(["chroot", str(root), "systemctl", "enable", *GUEST_UNITS], timeout=30)


def layer(kind: str, key: str, build: Callable[[Path], None]) -> Layer:
    """The directory `kind-key` of the cache, made if need be by `build`, which gets a name that does not exist."""
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{kind}-{key}"
    lock = path.with_suffix(".lock").open("a+")
    try:
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)  # waits for the process that builds it
            if path.is_dir():
                os.utime(lock.fileno())
                return Layer(path, lock)
            # Never waited for: who built it shares the lock at once, and for as long as a whole run.
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(lock, fcntl.LOCK_UN)
                time.sleep(random.uniform(0.05, 0.3))
                continue
            if not path.is_dir():
                _discard(path)
                unfinished = path.with_suffix(UNFINISHED)
                mask = os.umask(0o022)
                try:
                    build(unfinished)
                finally:
                    os.umask(mask)
                unfinished.rename(path)
                _prune(cache, kind, keep=path)
    except BaseException:
        lock.close()
        raise


def _prune(cache: Path, kind: str, keep: Path) -> None:
    """Removes what has not been used for long, and what is more than the newest few; nothing that is in use."""
    oldest = time.time() - UNUSED_DAYS * 86400  # noqa: TID251 - compared with file times
    used = {
        lock: lock.stat().st_mtime
        for lock in cache.glob(f"{kind}-*.lock")
        if lock.stem.rpartition("-")[0] == kind and lock.with_suffix("").is_dir()
    }
    newest = sorted(used, key=lambda lock: used[lock], reverse=True)[:KEPT]
    for lock_path in used:
        path = lock_path.with_suffix("")
        if path == keep or (lock_path in newest and used[lock_path] >= oldest):
            continue
        with lock_path.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            # The lock file stays: another process may be waiting for it.
            overlay.remove_tree(path)


def sweep() -> None:
    """Remove what killed builds left behind, mounts included. A layer that is being built is locked, and stays."""
    cache = cache_directory()
    for path in {each.with_name(each.name.partition(".")[0]) for each in cache.glob(f"*{UNFINISHED}*")}:
        with path.with_suffix(".lock").open("a+") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _discard(path)


def _discard(path: Path) -> None:
    """Remove what was made of a layer that was not finished."""
    unfinished = path.with_suffix(UNFINISHED)
    for leftover in (unfinished, overlay.scratch_of(unfinished)):
        overlay.unmount_below(leftover)
        overlay.remove_tree(leftover)


def digest(*parts: bytes) -> str:
    """The name in the cache of what is made from `parts`."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8) + part)
    return total.hexdigest()[:16]


def tree_digest(tree: Path) -> bytes:
    digest = hashlib.sha256()
    for path in sorted(tree.rglob("*")):
        digest.update(f"{path.relative_to(tree)}\0{path.lstat().st_mode & 0o170100:o}\0".encode())
        digest.update(str(path.readlink()).encode() if path.is_symlink() else b"")
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.digest()


if __name__ == "__main__":
    begun = time.monotonic()
    for built in base_image(print).layers:
        size = run(["du", "-sm", str(built.path)], timeout=60).stdout.split()[0].decode()
        print(f"{built.path.name}: {size} MB")
    print(f"ready in {time.monotonic() - begun:.1f} s")
