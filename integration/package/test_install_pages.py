# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/usage/install-tar.md, run as they are on a booted host and on the root of an image. Both end
with `nodeagent selfcheck`, and so do the tests of the other ways of installing. Those of docs/usage/upgrade.md remove
the package again."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from integration.hosts.container.container_host import Host
from integration.package.conftest import SOURCE, Package
from integration.package.newcomer import first_week
from nodeagent.reasons import known_reasons

TIMEOUT = 120.0  # seconds
PAGE = SOURCE / "docs/usage/install-tar.md"
UPGRADE = SOURCE / "docs/usage/upgrade.md"
COMMANDS = SOURCE / "nodeagent/cli"
INSTALL = "./install.sh "
# The program needs /proc in the root, as the page says.
IN_ROOT = 'mount -t proc proc "$1/proc" && exec chroot "$1" nodeagent selfcheck --json'


def commands(begin: str, page: Path = PAGE) -> list[str]:
    """Return the commands of the block that follows the line ``begin``."""
    text = page.read_text().partition(begin)[2]
    found = re.search(r"\n\n((?:    .+\n)+)", text)
    assert found is not None, begin
    return [line.partition(" #")[0].strip() for line in found[1].splitlines()]


def check_words(host: Host) -> None:
    """What commands name beside an address works on a host that cannot reach it: the reasons, and the manual."""
    for reason in [*known_reasons()][::25]:
        explained = host.run(["nodeagent", "explain", str(reason)], timeout=TIMEOUT).stdout
        assert reason.meaning in explained and reason.hint in explained, reason
    (manual,) = (host.root / "usr/share/man/man8").glob("nodeagent.8*")
    content = manual.read_bytes()
    text = (gzip.decompress(content) if manual.suffix == ".gz" else content).decode()
    named = set(re.findall(r"man nodeagent, ([A-Z]+)", "".join(path.read_text() for path in COMMANDS.rglob("*.py"))))
    assert named
    assert all(f"\n.SH {section}\n" in text for section in named), named


def outside(command: str) -> None:
    subprocess.run(["sh", "-euc", command], check=True, capture_output=True, timeout=TIMEOUT)


@pytest.mark.long
def test_the_tar_on_a_host(host: Host, package: Package) -> None:
    host.boot()
    first, *others = commands("On the host, as root")
    version = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]["version"]
    assert first.startswith(f"{INSTALL}nodeagent-{version}-")
    # The guest has no decompressor, so its root is the second argument.
    outside(f"{package.out}/install.sh {package.tar} {host.root}")
    assert others[-1] == "nodeagent selfcheck"
    for command in others:
        host.run(["sh", "-euc", command], timeout=TIMEOUT)
    files = (package.tree / "usr/lib/nodeagent/manifest").read_text().splitlines()
    assert all((host.root / name).exists() for name in files)
    first_week(host)
    check_words(host)
    for command in commands("**Uninstall** the tar", UPGRADE):
        host.run(["sh", "-euc", command], timeout=TIMEOUT)
    assert not [name for name in files if (host.root / name).exists()]
    assert not host.is_active("nodeagent.service")
    assert host.exists("/var/lib/nodeagent"), "the state stays"


@pytest.mark.long
def test_the_tar_in_the_root_of_an_image(host: Host, package: Package) -> None:
    *before, last = commands("## Into the root of an image")
    assert last == "chroot ROOT nodeagent selfcheck"
    for command in before:
        called = command.replace(f"{INSTALL}nodeagent-0.1.0-x86_64.tar.gz", f"{package.out}/install.sh {package.tar}")
        outside(called.replace("ROOT", str(host.root)))
    argv = ["unshare", "--mount", "sh", "-euc", IN_ROOT, "sh", str(host.root)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=TIMEOUT)
    found = {check["id"]: check["result"] for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 0, done.stdout
    assert {found[name] for name in ("unit.file", "unit.enabled", "files.package", "journal.catalog")} == {"ok"}
    assert found["unit.active"] == "skipped"
    host.boot()
    host.wait_for(lambda: host.is_active("nodeagent.service"), "the preset started the agent")
    host.run(["nodeagent", "selfcheck"])
