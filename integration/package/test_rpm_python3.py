# SPDX-License-Identifier: Apache-2.0
"""The RPM for hosts that have a Python: on Debian with its Python 3.13 and its packages of msgspec, psutil and PyYAML,
whose versions a package with Fedora's names provides. A real rpm installs, upgrades, downgrades and removes it, and a
real dnf runs the commands of docs/usage/install-rpm.md."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import Image, base_image, derived_image
from integration.hosts.errors import CommandFailed, Unavailable
from integration.hosts.nodeagent_client import machine_config
from integration.hosts.sources import code
from integration.package.conftest import BUILD_TIMEOUT, IMPORT_ALL, SOURCE, Package, cannot
from integration.package.newcomer import first_week
from integration.package.test_install_pages import commands
from integration.package.test_rpm import BASE, PAGE, RELOAD, TIMEOUT, WANTS, environment, files, make, rpm, stand_in
from integration.trees.base import install

pytestmark = pytest.mark.long

NAME = "nodeagent-python3"
HOME = "usr/lib/nodeagent/python"
# Debian's name of each package that the RPM requires, by Fedora's.
OF_HOST = {
    "python3": "python3",
    "python3-msgspec": "python3-msgspec",
    "python3-psutil": "python3-psutil",
    "python3-pyyaml": "python3-yaml",
}
# The directory is compiled after the upgrade to it, and has to go with the downgrade.
NEW = "nodeagent/extra/__init__.py"
# A newer Python of the host, for the trigger.
NEWER = """\
Name: newer
Version: 1
Release: 1
Summary: A file of another Python
License: MIT
BuildArch: noarch
AutoReqProv: no
%description
A file of another Python.
%install
mkdir -p %{buildroot}/usr/lib/python3.99
touch %{buildroot}/usr/lib/python3.99/os.py
%files
/usr/lib/python3.99
"""
# What the launcher sets, then each module. Warnings are errors, as for the other package.
IMPORT = f"""
import importlib.util, pathlib, sys
exec(pathlib.Path("/usr/bin/nodeagent").read_text().partition("from nodeagent")[0])
{IMPORT_ALL}
names = ("dbus_next", "structlog", "pyudev", "kubernetes", "aiohttp", "yarl", "multidict", "msgspec", "psutil", "yaml")
for name in names:
    print(name, importlib.util.find_spec(name).submodule_search_locations[0])
import aiohttp.http
print("parser", aiohttp.http.HttpResponseParser.__module__)
"""
# Where the parser of answers is. The compiled one is in aiohttp._http_parser.
IN_PYTHON = "aiohttp.http_parser"
RELOADABLE = "/etc/reloadable.conf"
POLICY = agent.policy(files={RELOADABLE: ["Restart reloadable.service"]})
CONFIG = machine_config("worker-1", files={RELOADABLE: "one\n"})


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """The root of a host with the packages of Debian that the RPM needs."""

    def change(root: Path) -> None:
        install(root, (*OF_HOST.values(), "dnf", "rpm"))

    try:
        made = derived_image(base_image(print), "host-python", code(__file__), change)
    except Unavailable as error:
        cannot(f"hosts cannot be booted here: {error}")
    with contextlib.closing(made):
        yield made


@pytest.fixture
def host(image: Image) -> Iterator[Host]:
    with Host(image) as host:
        host.write(agent.POLICY, POLICY)
        yield host


@pytest.fixture(scope="module")
def built(package: Package, image: Image, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both RPMs as `make rpm` makes them, the RPM of a later version, and those that are Fedora's."""
    out = tmp_path_factory.mktemp("rpm-python3")
    bundled, first, _module = make(package, out)
    later = out / package.tar.name.replace("-0.", "-9.")
    with tarfile.open(package.tar) as source, tarfile.open(later, "w:gz", compresslevel=1) as target:
        for member in source:
            content = source.extractfile(member) if member.isreg() else None
            if content is not None and member.name.endswith("site-packages/nodeagent/__init__.py"):
                # selfcheck compares it with the version in the name of the tar.
                text = content.read().replace(b'__version__ = "0.', b'__version__ = "9.')
                member.size = len(text)
                target.addfile(member, io.BytesIO(text))
                added = tarfile.TarInfo(f"{Path(member.name).parents[1]}/{NEW}")
                target.addfile(added, io.BytesIO())
            else:
                target.addfile(member, content)
    with Host(image) as host:
        provides = "".join(f"Provides: {name} = {debian(host, each)}\n" for name, each in OF_HOST.items())
    provides += "Provides: findutils = 4.10\n"
    base = stand_in(out, BASE.replace("Provides: systemd", f"{provides}Provides: systemd"))
    found = {"bundled": bundled, "first": first, "later": build(package, later, out), "base": base}
    return found | {"newer": stand_in(out, NEWER)}


def debian(host: Host, package: str) -> str:
    """Return the version of upstream of an installed package."""
    argv = ["chroot", str(host.root), "dpkg-query", "--show", "--showformat=${Version}", package]
    found = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout
    return found.rpartition("-")[0]


def build(package: Package, tar: Path, out: Path) -> Path:
    program = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import build_rpm
print(build_rpm.build_noarch("rpmbuild", Path(sys.argv[2]), Path(sys.argv[3]), build_rpm.FAST)[0])
"""
    argv: list[str | Path] = [sys.executable, "-c", program, package.source / "packaging", tar, out]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=BUILD_TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def query(path: Path, *arguments: str) -> str:
    argv = ["rpm", "--query", "--package", str(path), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout


def checks(host: Host) -> dict[str, str]:
    """Return the results of `nodeagent selfcheck` by check."""
    found = json.loads(host.run(["nodeagent", "selfcheck", "--json"]).stdout)
    return {check["id"]: check["result"] for check in found["checks"]}


def of_package(host: Host) -> set[str]:
    return {name for name in files(host) if name.startswith("usr/")}


def uncompiled(host: Host) -> list[str]:
    """Return the modules of the package without bytecode for the Python of the host."""
    found = sorted((host.root / HOME).rglob("*.py"))
    assert found
    version = debian(host, "python3").rpartition(".")[0].replace(".", "")
    wanted = {path: path.parent / "__pycache__" / f"{path.stem}.cpython-{version}.pyc" for path in found}
    return [str(path) for path, compiled in wanted.items() if not compiled.exists()]


def test_nothing_in_it_depends_on_the_architecture(package: Package, built: dict[str, Path], tmp_path: Path) -> None:
    assert query(built["first"], "--queryformat", "%{ARCH}") == "noarch"
    unpack = ["sh", "-euc", 'rpm2cpio "$1" | cpio --extract --make-directories --quiet --directory "$2"', "sh"]
    subprocess.run([*unpack, str(built["first"]), str(tmp_path)], check=True, timeout=TIMEOUT)
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(found) > 500
    assert not [path for path in found if path.read_bytes()[:4] == b"\x7fELF"]
    assert not [path for path in found if path.suffix in (".so", ".pyc")]
    # Those of the other package but for what its name, the Python and the architecture decide.
    manifest = (package.tree / "usr/lib/nodeagent/manifest").read_text().splitlines()
    shared = [
        name for name in manifest if not re.match(r"usr/(lib/nodeagent/(lib|bin|manifest)|share/(lic|seli))", name)
    ]
    listed = query(built["first"], "--list").split()
    assert {f"/{name}{'.gz' if 'man8' in name else ''}" for name in shared} <= set(listed)


def test_the_same_tar_gives_the_same_rpm(package: Package, built: dict[str, Path], tmp_path: Path) -> None:
    again = build(package, package.tar, tmp_path)
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(built["first"].read_bytes()).digest()


def test_install_apply_upgrade_downgrade_and_remove(built: dict[str, Path], host: Host) -> None:
    rpm(host, "--install", built["base"])
    before = files(host)

    rpm(host, "--upgrade", built["first"])
    assert rpm(host, "--verify", NAME) == ""
    assert uncompiled(host) == []
    installed = of_package(host)
    host.boot()
    host.wait_for(lambda: host.is_active("nodeagent.service"), "the preset enabled the agent, and the boot started it")
    agent.wait_daemon(host)
    host.run(["journalctl", "--update-catalog"])
    host.run(["nodeagent", "selfcheck"])
    begun = len(host.events())
    agent.apply_command(host, CONFIG, "--wait")
    assert host.read_text(RELOADABLE) == "one\n"
    assert agent.unit_events(host, "reloadable.service", since=begun) != []
    assert agent.status(host)["current"] == "worker-1"
    about = host.run(["nodeagent", "version", "--verbose"]).stdout
    assert f"Python {debian(host, 'python3')}, /usr/bin/python3, the interpreter of the host\n" in about
    assert "  aiohttp " in about
    assert "  sqlite " not in about, "it is not in the package"
    host.power_off()
    assert of_package(host) == installed, "neither the agent nor its commands write to /usr"

    rpm(host, "--upgrade", built["later"])
    assert (host.root / HOME / NEW).exists()
    assert uncompiled(host) == []
    assert (host.root / WANTS).is_symlink()
    host.boot()
    host.wait_for(lambda: host.is_active("nodeagent.service"), "the agent runs after the upgrade")
    host.run(["nodeagent", "selfcheck"])
    host.power_off()

    rpm(host, "--upgrade", "--oldpackage", built["first"])
    assert of_package(host) == installed, "with its bytecode, and nothing of the other version"
    assert rpm(host, "--verify", NAME) == ""

    for path in (host.root / HOME).rglob("__pycache__"):
        shutil.rmtree(path)
    rpm(host, "--install", built["newer"])
    assert uncompiled(host) == [], "another Python of the host has no bytecode yet"
    rpm(host, "--erase", "newer")

    rpm(host, "--erase", NAME)
    left = files(host) - before
    # Shared directories, such as that for fish, belong to no package of this host.
    assert not [name for name in left if name.startswith("usr/") and not (host.root / name).is_dir()]
    assert not {name for name in left if "nodeagent" in name} - {
        *("etc/nodeagent", agent.POLICY[1:], agent.DESIRED[1:]),
    }
    assert list((host.root / "var/lib/nodeagent").iterdir()), "the state stays for the next installation"


def test_the_first_week_of_a_newcomer(built: dict[str, Path], host: Host) -> None:
    rpm(host, "--install", built["base"], built["first"])
    host.boot()
    host.wait_for(lambda: host.is_active("nodeagent.service"), "the preset enabled the agent, and the boot started it")
    agent.wait_daemon(host)
    first_week(host)


def test_every_module_comes_from_the_place_that_it_should(built: dict[str, Path], host: Host) -> None:
    """The pinned packages are those of uv.lock, without compiled modules; three are the host's."""
    rpm(host, "--install", built["base"], built["first"])
    host.boot()
    found = host.run(["/usr/bin/python3", "-BIS", "-W", "error", "-c", IMPORT], timeout=TIMEOUT).stdout.splitlines()
    *listed, parser = (line.split() for line in found)
    places = dict(listed)
    theirs = {name for name, place in places.items() if place.startswith("/usr/lib/python3/dist-packages/")}
    assert theirs == {"msgspec", "psutil", "yaml"}
    assert {place for name, place in places.items() if name not in theirs} == {
        f"/{HOME}/{name}" for name in places if name not in theirs
    }
    assert parser[1] == IN_PYTHON


def test_a_host_without_a_package_is_refused(built: dict[str, Path], host: Host) -> None:
    with pytest.raises(AssertionError, match=r"python3-msgspec >= 0\.19 is needed by"):
        rpm(host, "--install", built["first"])


def test_the_commands_of_the_page(built: dict[str, Path], host: Host) -> None:
    host.write("/etc/dnf/dnf.conf", "[main]\nassumeyes=True\n")
    host.boot()
    for path in built.values():
        shutil.copy(path, host.root / "root")

    def run(command: str) -> None:
        host.run(["sh", "-euc", f"cd /root && {command}"], timeout=TIMEOUT)

    run(f"dnf install ./{built['base'].name}")
    install, *others = commands("that have Python 3.12 or newer", PAGE)
    assert install == f"dnf install ./{built['first'].name}"
    with pytest.raises(CommandFailed):
        host.run(["nodeagent", "version"])
    run(f"dnf install ./{built['bundled'].name}")
    for command in (RELOAD, *others):
        run(command)
    agent.apply_command(host, CONFIG, "--wait")
    before = checks(host)
    assert before["versions.package"] == "ok"
    exchange, start = commands("from the other RPM", PAGE)
    run(exchange)
    run(RELOAD)
    run(start)
    agent.wait_daemon(host)
    assert checks(host) == {**before, "versions.interpreter": "ok"}, "that of the host"
    assert agent.status(host)["current"] == "worker-1"
    assert "/usr/bin/python3" in host.run(["nodeagent", "version", "--verbose"]).stdout
    pid = host.unit("nodeagent.service", "MainPID")
    run(f"dnf upgrade ./{built['later'].name}")
    host.wait_for(lambda: host.is_active("nodeagent.service"), "the agent runs after the upgrade")
    assert host.unit("nodeagent.service", "MainPID") != pid
    run("dnf remove nodeagent-python3")
    assert not host.exists("/usr/bin/nodeagent")
    assert not host.exists("/usr/lib/nodeagent")
    for command in (install, RELOAD, *others):
        run(command)
    assert host.is_active("nodeagent.service")


def test_the_client_of_the_cluster_without_compiled_modules() -> None:
    """The tests of the client pass with the Python code of aiohttp and of what it needs."""
    names = ("AIOHTTP", "FROZENLIST", "MULTIDICT", "PROPCACHE", "YARL")
    off = {f"{name}_NO_EXTENSIONS": "1" for name in names}
    known = "import aiohttp.http as http; print(http.HttpResponseParser.__module__)"
    environ = {**os.environ, **off}
    parser = subprocess.run([sys.executable, "-c", known], env=environ, capture_output=True, text=True, check=True)
    assert parser.stdout.strip() == IN_PYTHON
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests/kube"]
    done = subprocess.run(
        argv, cwd=SOURCE, env=environ, capture_output=True, text=True, timeout=BUILD_TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stdout
