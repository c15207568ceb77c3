# SPDX-License-Identifier: Apache-2.0
"""The SELinux module of the package, compiled with the base module of Debian's reference policy, neverallow rules
included."""

from __future__ import annotations

import bz2
import os
import re
import subprocess
from pathlib import Path

import pytest

from integration.hosts import requirements
from integration.package.conftest import Package, cached, cannot

TIMEOUT = 300.0  # seconds
PACKAGES = ("selinux-policy-default", "policycoreutils", "secilc", "libsepol2")
MODULE = "usr/share/selinux/packages/nodeagent.cil"
# Users of the base name roles of other modules.
LOGINS = re.compile(rb"^\(selinuxuser.*\n", re.MULTILINE)
LABELS = {
    "/usr/bin/nodeagent": "nodeagent_exec_t",
    "/etc/nodeagent(/.*)?": "nodeagent_etc_t",
    "/etc/nodeagent/checks/.+/.+": "bin_t",
    "/run/nodeagent(/.*)?": "nodeagent_runtime_t",
    "/usr/lib/nodeagent/bin(/.*)?": "bin_t",
    "/var/lib/nodeagent(/.*)?": "nodeagent_var_lib_t",
    "/var/lib/private/nodeagent-bootstrap(/.*)?": "nodeagent_bootstrap_var_lib_t",
    "/var/lib/private/nodeagent-extensions(/.*)?": "nodeagent_extensions_var_lib_t",
}


@pytest.fixture(scope="module")
def policy() -> Path:
    """The directory with the tools and `base.cil`, unpacked from Debian's packages once."""
    if requirements.distribution() != "debian":
        cannot("the reference policy comes from Debian's archive, by apt-get of this machine")
    return cached("selinux", "policy", _unpack_policy)


def _unpack_policy(target: Path) -> None:
    fetch = ["apt-get", "-o", "APT::Sandbox::User=root", "download", "-q", *PACKAGES]
    done = subprocess.run(fetch, cwd=target, capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        cannot(f"the packages of the reference policy cannot be fetched: {done.stderr.strip()}")
    for package in target.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, target], check=True, timeout=TIMEOUT)
    compressed = (target / "usr/share/selinux/default/base.pp.bz2").read_bytes()
    (convert,) = target.glob("usr/lib*/selinux/hll/pp")
    base = run(target, convert, stdin=bz2.decompress(compressed)).stdout
    (target / "base.cil").write_bytes(LOGINS.sub(b"", base))


def run(policy: Path, *argv: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    (library,) = policy.rglob("libsepol.so.2")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    return subprocess.run(argv, input=stdin, env=environment, capture_output=True, timeout=TIMEOUT, check=False)


def compiled(policy: Path, module: Path, out: Path) -> subprocess.CompletedProcess[bytes]:
    options = ("--output", out / "policy", "--filecontexts", out / "file_contexts")
    return run(policy, policy / "usr/bin/secilc", *options, policy / "base.cil", module)


@pytest.mark.long
def test_the_module_of_the_package_compiles(package: Package, policy: Path, tmp_path: Path) -> None:
    done = compiled(policy, package.tree / MODULE, tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    lines = [line.split() for line in (tmp_path / "file_contexts").read_text().splitlines()]
    labels = {line[0]: line[-1].split(":")[2] for line in lines if "nodeagent" in line[0]}
    assert labels == LABELS


def test_a_rule_that_the_reference_policy_forbids_does_not(package: Package, policy: Path, tmp_path: Path) -> None:
    """The compiler checks neverallow rules, which semodule of Debian does not."""
    wrong = tmp_path / "nodeagent.cil"
    wrong.write_text((package.tree / MODULE).read_text() + "\n(allow nodeagent_t proc_kmsg_t (file (read)))\n")
    done = compiled(policy, wrong, tmp_path)
    assert done.returncode != 0
    assert b"neverallow check failed" in done.stderr
