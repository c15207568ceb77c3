# SPDX-License-Identifier: Apache-2.0
"""Assemble the installed tree: interpreter, packages, nodeagent, the files of systemd/ and of the features, the
Cockpit page.

All private files are under /usr/lib/nodeagent. Nothing is installed to /etc or /var: those belong to the host.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import completion
import schemas

from bundle import bytecode, components, dependencies, interpreter, origins
from bundle.elf import Elf
from bundle.errors import BuildError
from bundle.lock import InterpreterLock
from bundle.origins.base import HOME

MANIFEST = f"{HOME}/manifest"
# Below the folder of a feature: what it installs beside its code, as systemd/ has it for the base.
FEATURE_TREE = "tree"

# The kernel starts the interpreter: no shell, no search path, no environment.
# -I ignores PYTHON* variables, the user's packages and the working directory. -S skips the import of site, which would
# only add the path of the third line. -B writes no bytecode, because /usr is read-only on the hosts.
LAUNCHER = """\
#!{home}/bin/python3 -BIS
import sys
sys.path.append("{packages}")
from nodeagent.cli.main import entry
entry()
"""

# Libraries that every glibc host has; anything else must be in the tree.
OF_THE_HOST = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1"}
LOADER = "ld-linux-"


class Parts(NamedTuple):
    """What a tree is made of. The first three are for the machine of the tree, the last two for this one."""

    lock: InterpreterLock
    interpreter: Path
    packages: Path
    compiler: Path  # the interpreter of the same version
    same_packages: Path  # the same versions of the packages


def assemble(source: Path, version: str, parts: Parts, target: Path) -> None:
    """Fill the empty directory `target`. Raises BuildError if the result needs more than every host has."""
    lock, packages = parts.lock, parts.packages
    home = target / HOME[1:]
    site = target / dependencies.on_host(lock)[1:]
    shutil.copytree(parts.interpreter, home)
    shutil.copytree(packages, site)
    own = site / "nodeagent"
    shutil.copytree(source / "nodeagent", own, ignore=shutil.ignore_patterns("__pycache__", FEATURE_TREE))
    bytecode.compile_tree(parts.compiler, own, f"{dependencies.on_host(lock)}/nodeagent")
    launcher = target / "usr" / "bin" / "nodeagent"
    launcher.parent.mkdir()
    launcher.write_text(LAUNCHER.format(home=HOME, packages=dependencies.on_host(lock)))
    for tree in (source / "systemd", *sorted(source.glob(f"nodeagent/features/*/{FEATURE_TREE}"))):
        if (tree / "usr").is_dir():
            shutil.copytree(tree / "usr", target / "usr", dirs_exist_ok=True, symlinks=True)
    completion.write(target)
    schemas.write(target)
    manual = target / "usr" / "share" / "man" / "man8"
    manual.mkdir(parents=True)
    shutil.copyfile(source / "packaging" / "man" / "nodeagent.8", manual / "nodeagent.8")
    module = target / "usr" / "share" / "selinux" / "packages"
    module.mkdir(parents=True)
    shutil.copyfile(source / "packaging" / "selinux" / "nodeagent.cil", module / "nodeagent.cil")
    # Cockpit finds the page where it is installed; elsewhere these are a few unused kilobytes.
    shutil.copytree(source / "packaging" / "cockpit", target / "usr" / "share" / "cockpit" / "nodeagent")
    licenses = target / "usr" / "share" / "licenses" / "nodeagent"
    licenses.mkdir(parents=True)
    shutil.copyfile(source / "LICENSE", licenses / "LICENSE")
    (licenses / "python").mkdir()
    shutil.copyfile(home / "lib" / f"python{lock.short}" / "LICENSE.txt", licenses / "python" / "LICENSE")
    components.copy_licenses(source, packages, interpreter.licenses(parts.interpreter), licenses)
    made_of = origins.MODULES[lock.origin].parts(lock)
    listed = components.bundled(parts.compiler, parts.same_packages, made_of)
    components.write_sbom(listed, version, lock.origin, home / components.SBOM)
    check(target, lock)
    _set_modes(target)
    write_manifest(target)


def check(target: Path, lock: InterpreterLock) -> None:
    """Raise BuildError naming each binary that needs a newer glibc, or a library that a host may not have."""
    binaries = [(path, elf) for path in _files(target) if not path.is_symlink() and (elf := Elf.read(path))]
    shipped = {path.name for path, _elf in binaries}
    wrong = []
    for path, elf in binaries:
        wanted = [need.version for need in elf.version_needs() if _glibc(need.version) > _glibc(f"GLIBC_{lock.glibc}")]
        wanted += [name for name in elf.needed() if name not in OF_THE_HOST | shipped and not name.startswith(LOADER)]
        wrong += [f"{path.relative_to(target)} needs {each}" for each in wanted]
    if wrong:
        raise BuildError("some files do not run on every host:\n" + "\n".join(wrong))


def write_manifest(target: Path) -> None:
    """List every file of the tree, so that an upgrade can remove files that the next version does not have."""
    manifest = target / MANIFEST[1:]
    # It lists itself. The mode of touch() would depend on the umask.
    manifest.touch()
    manifest.chmod(0o644)
    manifest.write_text("".join(f"{path.relative_to(target)}\n" for path in _files(target)))


def _files(target: Path) -> Iterator[Path]:
    return (path for path in sorted(target.rglob("*")) if path.is_symlink() or not path.is_dir())


def _set_modes(target: Path) -> None:
    """Set modes that do not depend on the umask or the file system of the build machine."""
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)


def _glibc(version: str) -> tuple[int, ...]:
    """Return (2, 34) for GLIBC_2.34. Other families of versions, and GLIBC_ABI_* marks, sort below every release."""
    numbers = version.removeprefix("GLIBC_")
    return tuple(int(part) for part in numbers.split(".")) if numbers.replace(".", "").isdigit() else ()
