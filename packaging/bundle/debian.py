# SPDX-License-Identifier: Apache-2.0
"""Fetch source packages of Debian with apt, and make trees of a release of Debian.

apt takes an index only if it is signed by Debian, and a file only if the index has its sha256; then each file is
compared with the lock. A replay of an older index can therefore hide an update, but not change what is built.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bundle import cache, fetch, tools
from bundle.errors import BuildError
from bundle.lock import SourcePackage

UPDATE_TIMEOUT = 300.0  # seconds
DOWNLOAD_TIMEOUT = 900.0
TREE_TIMEOUT = 1200.0
# The user that apt and the compilers run as. It owns no file on any distribution.
UNPRIVILEGED = 65534
TREE_OPTIONS = (
    *("--quiet", "--variant=minbase", "--format=directory", "--aptopt=Apt::Install-Recommends false"),
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "info")),
)
KEYRINGS = Path("/usr/share/keyrings")
# URIs of mirrors, for machines whose apt has none.
ARCHIVE, SECURITY = "NODEAGENT_DEBIAN_ARCHIVE", "NODEAGENT_DEBIAN_SECURITY"
# Settings of this machine's apt that decide whether a download works at all.
COPIED = ("Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::Check-Valid-Until", "Acquire::Check-Date")
# A folder and an environment for apt-get.
Session = tuple[Path, dict[str, str]]
SETTINGS = """\
Dir::Etc::Parts "/dev/null";
Dir::Etc::Main "/dev/null";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::SourceList "{folder}/sources.list";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
APT::Sandbox::User "";
"""


def fetch_sources(packages: Mapping[str, SourcePackage], suites: Sequence[str]) -> dict[str, Path]:
    """Return the cached folder with the files of each source package, and fetch those that are missing.

    Raises BuildError for another file than the locked ones.
    """
    found: dict[str, Path] = {}
    with ExitStack() as stack:
        session: list[Session] = []

        def apt() -> Session:
            # Its index is needed once, and only if something is missing.
            if not session:
                session.append(stack.enter_context(_apt(suites)))
            return session[0]

        for name, package in packages.items():
            files = (each for pair in sorted(package.files.items()) for each in pair)
            key = cache.digest([package.package, package.version, *files])
            make = functools.partial(_fetch, package, suites, apt)
            found[name] = cache.directory("debian", key, make)
    return found


def _fetch(package: SourcePackage, suites: Sequence[str], apt: Callable[[], Session], target: Path) -> None:
    folder, environment = apt()
    tools.log(f"fetching {package.package} {package.version}")
    argv = ["apt-get", "source", "--quiet", "--download-only", "--only-source"]
    wanted = f"{package.package}={package.version}"
    try:
        tools.run([*argv, wanted], timeout=DOWNLOAD_TIMEOUT, env=environment, cwd=folder, user=_user())
    except BuildError as error:
        raise BuildError(_not_fetched(package, suites, error)) from error
    for name, sha256 in package.files.items():
        if not (folder / name).is_file():
            raise BuildError(f"{package.package} {package.version} has no file {name}, the lock has one")
        # Checked after it was copied to where only this user can write.
        shutil.copyfile(folder / name, target / name)
        fetch.check(target / name, sha256, name)


def make_tree(suite: str, packages: Sequence[str], target: Path) -> None:
    """Fill the empty directory `target` with a release of Debian and these packages. Raises BuildError."""
    if os.geteuid() != 0:
        raise BuildError("a tree to build in needs root (mmdebstrap, mount); the compilers in it have no privileges")
    tools.install("images")
    tools.log(f"making a tree of Debian {suite} to build in, some minutes, once")
    argv = ["mmdebstrap", *TREE_OPTIONS, f"--include={','.join(packages)}"]
    argv += [f"--aptopt={each}" for each in _settings()]
    # Without a mirror mmdebstrap has one of its own.
    archive = [mirror] if (mirror := _mirror(ARCHIVE, "Debian")) else []
    # The umask and the locale of the caller must not get into the tree.
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root"}
    tools.run([*argv, suite, target, *archive], timeout=TREE_TIMEOUT, env=environment)


@contextmanager
def _apt(suites: Sequence[str]) -> Iterator[Session]:
    """Have a folder and an environment in which apt-get knows the source packages of `suites` and no other settings.

    What parses data of the network there is not root.
    """
    tools.install("images")
    archive, security = _mirror(ARCHIVE, "Debian"), _mirror(SECURITY, "Debian-Security")
    if not (archive and security):
        raise BuildError(f"apt of this machine has no mirrors of Debian; name them in {ARCHIVE} and {SECURITY}")
    keyring = next(iter(sorted(KEYRINGS.glob("debian-archive-keyring.*"))), None)
    if keyring is None:
        raise BuildError(f"{KEYRINGS} has no keys of Debian")
    lines = [
        f"deb-src [signed-by={keyring}] {security if suite.endswith('-security') else archive} {suite} main\n"
        for suite in suites
    ]
    with tempfile.TemporaryDirectory(prefix="nodeagent-apt-") as directory:
        folder = Path(directory)
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text("".join(lines))
        (folder / "apt.conf").write_text(SETTINGS.format(folder=folder) + "".join(f"{each}\n" for each in _settings()))
        if (user := _user()) is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, user, user)
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "APT_CONFIG": str(folder / "apt.conf")}
        tools.run(["apt-get", "update", "--quiet"], timeout=UPDATE_TIMEOUT, env=environment, cwd=folder, user=user)
        yield folder, environment


def _user() -> int | None:
    return UNPRIVILEGED if os.geteuid() == 0 else None


def _mirror(variable: str, label: str) -> str:
    """Return the URI of a mirror: of the environment, else the first one that apt of this machine has; or nothing."""
    if given := os.environ.get(variable):
        return given
    if shutil.which("apt-get") is None:
        return ""
    found = _listed(label)
    if not found:
        # apt knows whose archive it is only from the Release file, and images of Debian come without one.
        tools.run(["apt-get", "update", "--quiet"], timeout=UPDATE_TIMEOUT)
        found = _listed(label)
    return found


def _listed(label: str) -> str:
    fields = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)"
    listed = tools.run(["apt-get", "indextargets", "--format", fields, "Created-By: Packages"], timeout=30)
    for line in listed.decode().splitlines():
        origin, found, component, uri = line.split("|", 3)
        if (origin, found, component) == ("Debian", label, "main"):
            return uri
    return ""


def _settings() -> list[str]:
    """Return lines of apt.conf for COPIED, those of them that are set."""
    if shutil.which("apt-config") is None:
        return []
    return tools.run(["apt-config", "dump", "--format", '%F "%v";%n', *COPIED], timeout=10).decode().splitlines()


def _not_fetched(package: SourcePackage, suites: Sequence[str], error: BuildError) -> str:
    listed = ", ".join(suites)
    return (
        f"{package.package} {package.version} of packaging/interpreter.toml cannot be fetched from {listed}. If Debian "
        f"has replaced it by a newer version, lock that one; {ARCHIVE} can name a mirror that keeps old ones.\n{error}"
    )
