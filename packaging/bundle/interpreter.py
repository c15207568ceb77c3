"""Unpack and trim the interpreter, and make it relocatable and independent of the libraries of the host.

The result is the content of /usr/lib/nodeagent: bin/python3, lib/libpython*.so and lib/pythonX.Y.
"""

from __future__ import annotations

import zipfile
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from bundle import bytecode, cache, fetch
from bundle.elf import Elf, replace_string
from bundle.errors import BuildError
from bundle.lock import InterpreterLock

# On the host.
HOME = "/usr/lib/nodeagent"

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

# The paths of authorities on Fedora, RHEL CoreOS and Debian. The rest of the compiled-in folder of OpenSSL stays
# private: the openssl.cnf of a host is written for the OpenSSL of the host.
AUTHORITIES = {"/ssl/cert.pem": "/etc/pki/tls/cert.pem", "/ssl/certs": "/etc/ssl/certs"}

# The loader tries every folder of this with every variant of the processor: two folders less are 40 system calls less.
BUILT_RUNPATH = "$ORIGIN/:$ORIGIN/../:$ORIGIN/../lib/"
RUNPATH = {"bin": "$ORIGIN/../lib", "lib": "$ORIGIN", "lib-dynload": "$ORIGIN"}  # by folder


def build(lock: InterpreterLock, compiler: Path | None = None) -> Path:
    """Return the cached directory with the interpreter of `lock`. It must not be changed.

    `compiler` is the interpreter of the same version that runs on this machine; None if that is the one to build.
    """
    source = [Path(__file__).with_name(f"{name}.py").read_bytes() for name in ("interpreter", "elf", "bytecode")]
    return cache.directory(
        "interpreter", cache.digest([lock.text, lock.machine, *source]), lambda to: _make(lock, compiler, to)
    )


def _make(lock: InterpreterLock, compiler: Path | None, target: Path) -> None:
    library = target / "lib" / f"python{lock.short}"
    _unpack(lock, target, library)
    for part in lock.libraries:
        wheel = fetch.wheel(part.pypi, part.sha256, python=lock.short, platform=lock.wheels)
        elf = Elf.read(wheel / part.file)
        if elf is None:
            raise BuildError(f"{part.file} of {part.pypi} is no shared library")
        for unused in part.drop:
            elf.drop_needed(unused)
        elf.strip()
        # The modules that use it search their own folder first.
        (library / "lib-dynload" / part.soname).write_bytes(elf.data)
    for path in sorted(target.rglob("*")):
        if path.is_file():
            _adapt(path, lock)
    bytecode.compile_tree(compiler or target / "bin" / "python3", library, f"{HOME}/lib/python{lock.short}")


def _unpack(lock: InterpreterLock, target: Path, library: Path) -> None:
    places = {
        f"bin/python{lock.short}": target / "bin" / "python3",
        f"libpython{lock.short}.so.1.0": target / "lib" / f"libpython{lock.short}.so.1.0",
        "libffi.so.8": library / "lib-dynload" / "libffi.so.8",
    }
    prefix = PurePosixPath("lib", f"python{lock.short}")
    with zipfile.ZipFile(fetch.maven(lock.cpython.maven, lock.cpython.sha256)) as archive:
        for info in archive.infolist():
            path = PurePosixPath(info.filename)
            if info.is_dir() or not path.is_relative_to(lock.cpython.root):
                continue
            path = path.relative_to(lock.cpython.root)
            place = places.pop(str(path), None)
            if place is None and path.is_relative_to(prefix) and _used(path.relative_to(prefix)):
                place = library / path.relative_to(prefix)
            if place is not None:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(info))
    if places:
        raise BuildError(f"{lock.cpython.maven} lacks {', '.join(places)}")
    (target / "bin" / "python3").chmod(0o755)


def _used(path: PurePosixPath) -> bool:
    first = path.parts[0]
    if first in UNUSED or "__pycache__" in path.parts or any(fnmatchcase(first, each) for each in UNUSED_PATTERNS):
        return False
    if first == "encodings":
        return path.stem in ENCODINGS
    if path.parts[:2] in UNUSED_FOLDERS:
        return False
    return first != "lib-dynload" or not any(fnmatchcase(path.name, each) for each in UNUSED_COMPILED)


def _adapt(path: Path, lock: InterpreterLock) -> None:
    """Replace the folders of the machine where CPython was built in one file, and bind it to the oldest glibc."""
    elf = Elf.read(path)
    if elf is None:
        text = path.read_bytes()
        path.write_bytes(text.replace(lock.cpython.prefix.encode(), HOME.encode()))
        return
    for symbol, (version, to) in lock.cpython.rebind.items():
        elf.rebind(symbol, version, to)
    for old, new in AUTHORITIES.items():
        replace_string(elf.data, lock.cpython.prefix + old, new)
    replace_string(elf.data, lock.cpython.prefix, HOME)
    replace_string(elf.data, BUILT_RUNPATH, RUNPATH[path.parent.name])
    path.write_bytes(elf.data)
