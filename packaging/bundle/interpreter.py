# SPDX-License-Identifier: Apache-2.0
"""Take the interpreter from its origin, and remove what nodeagent does not use.

The result has two folders: `home` is the content of /usr/lib/nodeagent (bin/python3, lib/pythonX.Y, and libpython where
the program needs it), `licenses` the licence texts that came with the sources.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from bundle import bytecode, cache, origins
from bundle.elf import Elf
from bundle.errors import BuildError
from bundle.lock import SOURCE, InterpreterLock
from bundle.origins import source
from bundle.origins.base import HOME, LICENSES, PYTHON, library_of

FOLDER = Path(__file__).parent

# Packages and modules of the standard library that a daemon without a terminal, a compiler or a user never imports.
UNUSED = {
    "__phello__", "_pyrepl", "curses", "dbm", "ensurepip", "idlelib", "pydoc_data", "site-packages", "test", "tkinter",
    "turtledemo", "unittest", "venv", "wsgiref", "xmlrpc",
    "multiprocessing", "profiling",
    "__hello__.py", "antigravity.py", "build-details.json", "doctest.py", "pydoc.py", "this.py", "turtle.py",
    "_pydatetime.py", "_pydecimal.py", "_pyio.py", "bdb.py", "cProfile.py", "cmd.py", "code.py", "fileinput.py",
    "ftplib.py", "imaplib.py", "mailbox.py", "modulefinder.py", "nturl2path.py", "optparse.py", "pdb.py",
    "pickletools.py", "plistlib.py", "poplib.py", "profile.py", "pstats.py", "pty.py", "pyclbr.py", "rlcompleter.py",
    "sched.py", "shelve.py", "sre_compile.py", "sre_constants.py", "sre_parse.py", "statistics.py", "symtable.py",
    "tabnanny.py", "timeit.py", "trace.py", "wave.py", "webbrowser.py", "zipapp.py",
}  # fmt: skip
UNUSED_PATTERNS = ("config-*", "_sysconfig_vars_*", "__pycache__")
UNUSED_FOLDERS = {("xml", "dom"), ("xml", "sax"), ("ctypes", "macholib")}

# Everything that nodeagent reads and writes is UTF-8. IDNA is for the names of hosts, cp437 for the names in zip files.
ENCODINGS = {
    "__init__", "aliases", "ascii", "cp437", "idna", "iso8859_1", "latin_1", "punycode", "raw_unicode_escape",
    "undefined", "unicode_escape", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le", "utf_7",
    "utf_8", "utf_8_sig",
}  # fmt: skip

# Compiled modules: those for tests; those with libraries that not every host has, and that importers do without
# (bz2, lzma, zstd, uuid, readline); East Asian codecs; and _hashlib, 6 MB of a second OpenSSL, without which hashlib
# takes its built-in implementations and loads in a tenth of the time.
UNUSED_COMPILED = (
    "_test*", "_ctypes_test*", "_xxtestfuzz*", "xx*", "_remote_debugging*", "_curses*", "readline*",
    "_bz2*", "_lzma*", "_zstd*", "_uuid*", "_codecs_*", "_multibytecodec*", "_hashlib*",
)  # fmt: skip


def build(lock: InterpreterLock, compiler: Path | None = None) -> Path:
    """Return `home` in the cached directory with the interpreter of `lock`. It must not be changed.

    `compiler` is the interpreter of the same version that runs on this machine; None if that is the one to build.
    """
    names = ("interpreter", "elf", "bytecode", "origins/base", f"origins/{lock.origin}")
    code = [(FOLDER / f"{name}.py").read_bytes() for name in names]
    if lock.origin == SOURCE:
        code.append(source.key(lock).encode())
    key = cache.digest([lock.text, lock.machine, lock.origin, *code])
    return cache.directory("interpreter", key, lambda to: _make(lock, compiler, to)) / "home"


def licenses(home: Path) -> Path:
    """Return the folder with the licence texts of the interpreter in `home`. Some origins have none."""
    return home.parent / LICENSES


def _make(lock: InterpreterLock, compiler: Path | None, target: Path) -> None:
    home, library = target / "home", library_of(lock)

    def wanted(path: PurePosixPath) -> bool:
        return not path.is_relative_to(library) or _used(path.relative_to(library))

    for path, content in origins.MODULES[lock.origin].files(lock, wanted):
        place = (target if path.is_relative_to(LICENSES) else home) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    python = home / PYTHON
    if not (python.is_file() and Elf.read(python) and (home / library / "os.py").is_file()):
        raise BuildError(f"the origin {lock.origin} gave no interpreter")
    python.chmod(0o755)
    bytecode.compile_tree(compiler or python, home / library, f"{HOME}/{library}")


def _used(path: PurePosixPath) -> bool:
    first = path.parts[0]
    if first in UNUSED or "__pycache__" in path.parts or any(fnmatchcase(first, each) for each in UNUSED_PATTERNS):
        return False
    if first == "encodings":
        return path.stem in ENCODINGS
    if path.parts[:2] in UNUSED_FOLDERS:
        return False
    return first != "lib-dynload" or not any(fnmatchcase(path.name, each) for each in UNUSED_COMPILED)
