# SPDX-License-Identifier: Apache-2.0
"""An interpreter of parts that were prebuilt for something else, made relocatable: for tests.

CPython is in an artifact of a Java library, SQLite in the wheel of a library for maps.
"""

from __future__ import annotations

import zipfile
from pathlib import PurePosixPath

from bundle import fetch
from bundle.elf import Elf, replace_string
from bundle.errors import BuildError
from bundle.lock import Cpython, InterpreterLock, TestingLock
from bundle.origins.base import HOME, PYTHON, Files, Part, Wanted, library_of

# What is inside of the artifact, as parts that the SBOM names.
INSIDE = ("python", "openssl", "expat", "libffi", "mpdecimal")

# The paths of authorities on Fedora, RHEL CoreOS and Debian. The rest of the compiled-in folder of OpenSSL stays
# private: the openssl.cnf of a host is written for the OpenSSL of the host.
AUTHORITIES = {"/ssl/cert.pem": "/etc/pki/tls/cert.pem", "/ssl/certs": "/etc/ssl/certs"}

# The loader tries every folder of this with every variant of the processor: two folders less are 40 system calls less.
BUILT_RUNPATH = "$ORIGIN/:$ORIGIN/../:$ORIGIN/../lib/"
RUNPATH = {"bin": "$ORIGIN/../lib", "lib": "$ORIGIN", "lib-dynload": "$ORIGIN"}  # by folder


def files(lock: InterpreterLock, wanted: Wanted) -> Files:
    details = _details(lock)
    for path, content in _cpython(lock, details.cpython, wanted):
        yield path, _adapted(path, content, details.cpython)
    for part in details.libraries.values():
        wheel = fetch.wheel(part.pypi, part.sha256, python=lock.short, platform=lock.wheels)
        elf = Elf.read(wheel / part.file)
        if elf is None:
            raise BuildError(f"{part.file} of {part.pypi} is no shared library")
        for unused in part.drop:
            elf.drop_needed(unused)
        elf.strip()
        # The modules that use it search their own folder first.
        yield library_of(lock) / "lib-dynload" / part.soname, bytes(elf.data)


def parts(lock: InterpreterLock) -> list[Part]:
    details = _details(lock)
    group, name, version, packaging, classifier = details.cpython.maven.split(":")
    purl = f"pkg:maven/{group}/{name}@{version}?classifier={classifier}&type={packaging}"
    found = [Part(each, "", purl, (details.cpython.sha256,)) for each in INSIDE]
    for each, library in details.libraries.items():
        found.append(Part(each, "", f"pkg:pypi/{library.pypi.replace('==', '@')}", (library.sha256,)))
    return found


def _details(lock: InterpreterLock) -> TestingLock:
    if not isinstance(lock.details, TestingLock):
        raise TypeError("this is the lock of another origin")
    return lock.details


def _cpython(lock: InterpreterLock, cpython: Cpython, wanted: Wanted) -> Files:
    library = library_of(lock)
    shared = f"libpython{lock.short}.so.1.0"
    places = {
        f"bin/python{lock.short}": PYTHON,
        shared: library.parent / shared,
        "libffi.so.8": library / "lib-dynload" / "libffi.so.8",
    }
    with zipfile.ZipFile(fetch.maven(cpython.maven, cpython.sha256)) as archive:
        for info in archive.infolist():
            path = PurePosixPath(info.filename)
            if info.is_dir() or not path.is_relative_to(cpython.root):
                continue
            path = path.relative_to(cpython.root)
            place = places.pop(str(path), None) or (path if path.is_relative_to(library) and wanted(path) else None)
            if place is not None:
                yield place, archive.read(info)
    if places:
        raise BuildError(f"{cpython.maven} lacks {', '.join(places)}")


def _adapted(path: PurePosixPath, content: bytes, cpython: Cpython) -> bytes:
    """Replace the folders of the machine where CPython was built in one file, and bind it to the oldest glibc."""
    elf = Elf.parse(content)
    if elf is None:
        return content.replace(cpython.prefix.encode(), HOME.encode())
    for symbol, (version, to) in cpython.rebind.items():
        elf.rebind(symbol, version, to)
    for old, new in AUTHORITIES.items():
        replace_string(elf.data, cpython.prefix + old, new)
    replace_string(elf.data, cpython.prefix, HOME)
    replace_string(elf.data, BUILT_RUNPATH, RUNPATH[path.parent.name])
    return bytes(elf.data)
