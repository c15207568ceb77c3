# SPDX-License-Identifier: Apache-2.0
"""The RPM, installed by a real rpm on the files of a host that then boots: a preset starts the agent, an upgrade and a
downgrade keep what the admin decided, and a removal leaves nothing but the host's own files. And by a real dnf, with
the commands of docs/usage/install-rpm.md."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from integration.hosts.container.container_host import Host
from integration.hosts.errors import CommandFailed
from integration.package import provisioning
from integration.package.conftest import BUILD_TIMEOUT, EPOCH, SOURCE, Package, cannot
from integration.package.newcomer import first_week
from integration.package.test_install_pages import check_words, commands

pytestmark = pytest.mark.long

TIMEOUT = 120.0  # seconds
# On a host with RPM, the file triggers of systemd do this after each transaction. Debian's systemd has none.
RELOAD = "systemctl daemon-reload"
PAGE = SOURCE / "docs/usage/install-rpm.md"
VERIFY = SOURCE / "docs/usage/verify-a-release.md"
WANTS = "etc/systemd/system/multi-user.target.wants/nodeagent.service"
GONE, NEW = "usr/lib/nodeagent/lib/python3.14/asyncio/windows_events.py", "usr/lib/nodeagent/new"
# What the package requires of a host, for a root whose packages are Debian's.
BASE = """\
Name: base
Version: 1
Release: 1
Summary: What the host has
License: MIT
BuildArch: noarch
Provides: glibc = 2.41
Provides: systemd = 257
Provides: /bin/sh
%description
What the host has.
%files
"""


@pytest.fixture(scope="module")
def built(package: Package, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The RPM as `make rpm` makes it, the RPM of a later version, and one that provides what ours requires."""
    out = tmp_path_factory.mktemp("rpm")
    first, _python3, module = make(package, out)
    later = out / package.tar.name.replace("-0.", "-9.")
    with tarfile.open(package.tar) as source, tarfile.open(later, "w:gz", compresslevel=1) as target:
        for member in source:
            if member.name != GONE:
                target.addfile(member, source.extractfile(member) if member.isreg() else None)
        target.addfile(tarfile.TarInfo(NEW))
    base = stand_in(out, BASE)
    return {"first": first, "later": build(package, later, out), "base": base, "module": module}


def make(package: Package, out: Path) -> list[Path]:
    """Run `make rpm`, and return what it writes to ``out``: the package, that for the host's Python, the module."""
    for path in (*package.out.iterdir(),):
        shutil.copy2(path, out)
    script: list[str | Path] = [sys.executable, package.source / "packaging" / "build_rpm.py", "--fast", "--out", out]
    script += ["--interpreter", "testing"]
    done = subprocess.run(script, env=environment(), capture_output=True, text=True, timeout=BUILD_TIMEOUT, check=False)
    if "missing: " in done.stderr:
        cannot(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return sorted(out.glob("*.rpm"))


def stand_in(out: Path, text: str) -> Path:
    """Build the RPM of a spec without sources in ``out``."""
    name = text.splitlines()[0].removeprefix("Name: ")
    spec = out / f"{name}.spec"
    spec.write_text(text)
    top = f"{out}/{name}"
    command: list[str | Path] = [
        *("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {top}", "--define", f"_rpmdir {top}/built"),
        spec,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT)
    (built,) = Path(top, "built").rglob("*.rpm")
    return built


def environment() -> dict[str, str]:
    return {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}


def build(package: Package, tar: Path, out: Path) -> Path:
    program = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import build_rpm
print(build_rpm.build("rpmbuild", Path(sys.argv[2]), Path(sys.argv[3]), build_rpm.FAST)[0])
"""
    argv: list[str | Path] = [sys.executable, "-c", program, package.source / "packaging", tar, out]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=BUILD_TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def rpm(host: Host, *arguments: str | Path) -> str:
    """Run rpm on the files of a host that is off."""
    argv: list[str | Path] = [
        "rpm",
        "--root",
        host.root,
        "--dbpath",
        "/usr/lib/sysimage/rpm",
        "--nosignature",
        *arguments,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files(host: Host) -> set[str]:
    found = (path for top in ("usr", "etc") for path in (host.root / top).rglob("*"))
    return {str(path.relative_to(host.root)) for path in found if "sysimage/rpm" not in str(path)}


def test_the_same_tar_gives_the_same_rpm(package: Package, built: dict[str, Path], tmp_path: Path) -> None:
    again = build(package, package.tar, tmp_path)
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(built["first"].read_bytes()).digest()


def test_what_a_reviewer_of_packages_looks_for(built: dict[str, Path]) -> None:
    def query(*words: str) -> str:
        command = ["rpm", "--query", "--package", *words, str(built["first"])]
        return subprocess.run(command, capture_output=True, check=True, timeout=60, text=True).stdout

    provides = query("--provides")
    assert "bundled(python) = " in provides
    assert "bundled(openssl) = " in provides
    assert "bundled(python3dist(msgspec)) = " in provides
    assert "- Version " in query("--changelog")
    assert query("--queryformat", "%{URL}").startswith("https://")
    assert "\n\n" not in query("--queryformat", "%{DESCRIPTION}")


def test_the_module_is_a_package_of_its_own(package: Package, built: dict[str, Path]) -> None:
    def query(*arguments: str) -> str:
        argv = ["rpm", "--query", "--package", str(built["module"]), *arguments]
        return subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout

    assert query("--list").split() == ["/usr/share/selinux/packages/nodeagent.cil"]
    assert "semodule -n -X 200 -i /usr/share/selinux/packages/nodeagent.cil" in query("--scripts")
    assert "nodeagent = " in query("--requires")
    listed = subprocess.run(
        ["rpm", "--query", "--list", "--package", str(built["first"])], capture_output=True, text=True, check=True
    )
    assert "nodeagent.cil" not in listed.stdout


def test_install_upgrade_downgrade_and_remove(package: Package, built: dict[str, Path], host: Host) -> None:
    rpm(host, "--install", built["base"])
    before = files(host)

    rpm(host, "--upgrade", built["first"])
    manifest = (package.tree / "usr/lib/nodeagent/manifest").read_text().splitlines()
    expected = {"usr/share/man/man8/nodeagent.8.gz" if "man8" in name else name for name in manifest}
    expected.remove("usr/share/selinux/packages/nodeagent.cil")
    listed = {name.removeprefix("/") for name in rpm(host, "--query", "--list", "nodeagent").splitlines()}
    assert expected - {"usr/lib/nodeagent/manifest"} <= listed
    assert rpm(host, "--verify", "nodeagent") == ""
    host.boot()
    host.wait_for(lambda: host.is_active("nodeagent.service"), "the preset enabled the agent, and the boot started it")
    # On a host with RPM, the file triggers of systemd do this.
    host.run(["journalctl", "--update-catalog"])
    host.run(["nodeagent", "selfcheck"])
    check_words(host)
    settings = host.root / "etc/nodeagent/config.d/50-site.yaml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("log:\n  level: debug\n")
    host.power_off()

    rpm(host, "--upgrade", built["later"])
    assert (host.root / NEW).exists()
    assert not (host.root / GONE).exists()
    assert (host.root / WANTS).is_symlink()
    host.boot()
    host.wait_for(lambda: host.is_active("nodeagent.service"), "the agent runs after the upgrade")
    host.run(["nodeagent", "selfcheck"])
    host.run(["systemctl", "disable", "nodeagent.service"])
    host.power_off()

    rpm(host, "--upgrade", "--oldpackage", built["first"])
    assert not (host.root / NEW).exists()
    assert rpm(host, "--verify", "nodeagent") == ""
    assert not (host.root / WANTS).is_symlink(), "disabled by the admin"

    rpm(host, "--erase", "nodeagent")
    left = files(host) - before
    assert not {name for name in left if "nodeagent" in name} - {
        "etc/nodeagent",
        "etc/nodeagent/config.d",
        "etc/nodeagent/config.d/50-site.yaml",
    }
    assert list((host.root / "var/lib/nodeagent").iterdir()), "the state stays for the next installation"


def test_a_host_that_requires_signatures(
    built: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of docs/usage/verify-a-release.md, by the rpm and the dnf of the host."""
    monkeypatch.setenv("GNUPGHOME", str(tmp_path))
    gpg = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", "publisher", "rsa3072", "sign", "never"]
    subprocess.run(gpg, check=True, capture_output=True, timeout=TIMEOUT)
    with contextlib.closing(provisioning.tools()) as image, Host(image) as host:
        host.write("/etc/dnf/dnf.conf", "[main]\nassumeyes=True\n")
        host.boot()
        for path in (built["base"], built["first"]):
            shutil.copy(path, host.root / "root")
        host.run(["dnf", "install", f"/root/{built['base'].name}"], timeout=TIMEOUT)
        (install,) = commands("Have dnf refuse", VERIFY)
        install = install.replace("nodeagent-0.1.0-1.x86_64.rpm", built["first"].name)
        with pytest.raises(CommandFailed, match="not signed"):
            host.run(["sh", "-euc", f"cd /root && {install}"], timeout=TIMEOUT)
        sign(tmp_path, host.root / "root")
        with pytest.raises(CommandFailed, match=r"[Pp]ublic key"):
            host.run(["sh", "-euc", f"cd /root && {install}"], timeout=TIMEOUT)
        keys, check = commands("## The RPM", VERIFY)
        host.run(["sh", "-euc", f"cd /root && {keys}"], timeout=TIMEOUT)
        said = host.run(["sh", "-euc", f"cd /root && {check}"], timeout=TIMEOUT)
        assert "digests signatures OK" in said.stdout
        host.run(["sh", "-euc", f"cd /root && {install}"], timeout=TIMEOUT)
        assert host.exists("/usr/bin/nodeagent")
    subprocess.run(["gpgconf", "--kill", "all"], check=True, timeout=TIMEOUT)


def sign(scratch: Path, directory: Path) -> None:
    """Sign the package of a directory as a release does, and write the key of the publisher beside it."""
    program = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from bundle import signing
fingerprint = signing.check_key("publisher")
signing.sign_rpms(Path(sys.argv[2]), fingerprint)
signing.write_public(fingerprint, Path(sys.argv[2], signing.PUBLIC))
"""
    argv: list[str | Path] = [sys.executable, "-c", program, SOURCE / "packaging", directory]
    subprocess.run(argv, check=True, capture_output=True, timeout=TIMEOUT, cwd=scratch)


def test_the_commands_for_a_host_with_dnf(built: dict[str, Path]) -> None:
    with contextlib.closing(provisioning.tools()) as image, Host(image) as host:
        host.write("/etc/dnf/dnf.conf", "[main]\nassumeyes=True\n")
        host.boot()
        for path in built.values():
            shutil.copy(path, host.root / "root")
        host.run(["dnf", "install", f"/root/{built['base'].name}"], timeout=TIMEOUT)
        install, *others = commands("On a host with dnf", PAGE)
        assert install == f"dnf install ./{built['first'].name.replace('-0.testing', '-1')}"
        for command in (f"dnf install ./{built['first'].name}", RELOAD, *others, *commands("has its own list", PAGE)):
            host.run(["sh", "-euc", f"cd /root && {command}"], timeout=TIMEOUT)
        assert host.is_active("nodeagent.service")
        first_week(host)
        pid = host.unit("nodeagent.service", "MainPID")
        host.run(["dnf", "upgrade", f"/root/{built['later'].name}"], timeout=TIMEOUT)
        host.wait_for(lambda: host.is_active("nodeagent.service"), "the agent runs after the upgrade")
        assert host.unit("nodeagent.service", "MainPID") != pid
        host.run(RELOAD.split())
        host.run(["nodeagent", "selfcheck"])
        host.run(["dnf", "downgrade", f"/root/{built['first'].name}"], timeout=TIMEOUT)
        host.wait_for(lambda: host.is_active("nodeagent.service"), "the agent runs after the downgrade")
        host.run(["dnf", "remove", "nodeagent"], timeout=TIMEOUT)
        assert not host.exists("/usr/bin/nodeagent")
        assert not host.is_active("nodeagent.service")
