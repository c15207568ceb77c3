# SPDX-License-Identifier: Apache-2.0
"""Make the tree for hosts that have a Python out of the tree of `make package`.

It has the same files without the interpreter, the compiled modules and the bytecode. Packages that do not work without
their compiled modules are left to the host; the others are those of uv.lock.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import tomllib
from importlib import metadata
from pathlib import Path

from bundle import components, images
from bundle.elf import Elf
from bundle.errors import BuildError
from bundle.names import TAR, Name
from bundle.origins.base import HOME

MACHINE = "noarch"
PYTHON = "/usr/bin/python3"
ORIGIN = "host"
PACKAGES = f"{HOME}/python"

# Packages of the host, by their names in pyproject.toml: what Fedora calls them, and their modules.
OF_HOST = {
    "msgspec": ("python3-msgspec", ("msgspec",)),
    "psutil": ("python3-psutil", ("psutil",)),
    "pyyaml": ("python3-pyyaml", ("yaml", "_yaml")),
}
# Packages that have each compiled module in Python as well, and take that where the other one is missing.
WITH_FALLBACK = ("aiohttp", "frozenlist", "multidict", "propcache", "yarl")
# Of the interpreter and of compiled modules.
UNUSED = ("bin", "lib", "manifest", components.SBOM)

# -S, because site would run what an admin installed below /usr/local, and would read .pth files at each start. The
# last three are where the packages of Fedora and of Debian are.
LAUNCHER = """\
#!{python} -BIS
import sys
sys.path += [
    "{packages}",
    "/usr/lib64/python%d.%d/site-packages" % sys.version_info[:2],
    "/usr/lib/python%d.%d/site-packages" % sys.version_info[:2],
    "/usr/lib/python3/dist-packages",
]
from nodeagent.cli.main import entry
entry()
"""


def repack(tar: Path, out: Path, epoch: int, compressor: Path) -> Path:
    """Write the tar for hosts with a Python to the directory `out`, and return its path. Raises BuildError.

    `tar` is that of any machine, and the result is the same for each. `compressor` is a Python.
    """
    # Without the interpreter, nothing in it is for tests only.
    name = Name(Name.of(tar).version, MACHINE)
    root = out / "root"
    root.mkdir()
    with tarfile.open(tar) as archive:
        # The 3.11.2 of Debian 12 has none.
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)
        archive.extractall(root)
    reduce(root, name.version)
    target = out / name.file(TAR)
    images.write_tar(root, target, epoch, compressor)
    return target


def reduce(root: Path, version: str) -> None:
    """Take away what the host has, and put a launcher for its Python. Raises BuildError for what fits no host."""
    home = root / HOME[1:]
    (site,) = (home / "lib").glob("python3.*/site-packages")
    packages = site.rename(root / PACKAGES[1:])
    for name in UNUSED:
        path = home / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in sorted(packages.rglob("__pycache__")):
        shutil.rmtree(path)
    for each in metadata.distributions(path=[str(packages)]):
        _reduce_package(packages, each)
    # The module for SELinux is in an RPM of its own, which is the same for both.
    shutil.rmtree(root / "usr/share/selinux")
    kept = list(metadata.distributions(path=[str(packages)]))
    texts = {_normalized(each.name) for each in kept}
    for path in (root / "usr/share/licenses/nodeagent").iterdir():
        if path.is_dir() and path.name not in texts:
            shutil.rmtree(path)
    listed = sorted(components.package(each) for each in kept)
    components.write_sbom(listed, version, ORIGIN, home / components.SBOM)
    (home / components.SBOM).chmod(0o644)
    launcher = root / "usr/bin/nodeagent"
    launcher.write_text(LAUNCHER.format(python=PYTHON, packages=PACKAGES))
    if native := [str(path.relative_to(root)) for path in sorted(root.rglob("*")) if path.is_file() and Elf.read(path)]:
        raise BuildError(f"files for one architecture: {', '.join(native)}")


def _reduce_package(packages: Path, package: metadata.Distribution) -> None:
    """Remove a package of the host, and the compiled modules of one that works without them."""
    name = _normalized(package.name)
    if name in OF_HOST:
        info = f"{package.name.replace('-', '_')}-{package.version}.dist-info"
        for each in (*OF_HOST[name][1], info):
            # The names in metadata have capitals that those of the folders have not.
            (folder,) = (path for path in packages.iterdir() if path.name.lower() == each.lower())
            shutil.rmtree(folder)
        return
    if "Root-Is-Purelib: true" in (package.read_text("WHEEL") or ""):
        return
    if name not in WITH_FALLBACK:
        raise BuildError(f"{name} has compiled modules: packaging/bundle/noarch.py must name what hosts have instead")
    for path in (packages / name).rglob("*.so"):
        path.unlink()
    # It names the architecture of the wheel.
    for path in packages.glob(f"{name}-*.dist-info/WHEEL"):
        path.unlink()


def requirements(project: Path) -> list[str]:
    """Return what the RPM requires of the host's Python, with the lower bounds of pyproject.toml."""
    listed = tomllib.loads(project.read_text())["project"]["dependencies"]
    found = dict(re.split("[>=]=", each) for each in listed)
    return [f"{name} >= {found[each]}" for each, (name, _modules) in OF_HOST.items()]


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
