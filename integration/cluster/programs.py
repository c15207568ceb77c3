# SPDX-License-Identifier: Apache-2.0
"""The programs of a control plane, and of peers that are tested against: found, or built once.

    python -m integration.cluster.programs           fills the cache, says how long that took and where it is
    python -m integration.cluster.programs crictl    the same for crictl, which only the long tests of nodes need

A control plane is looked for in $KUBEBUILDER_ASSETS (the convention of the field), in PATH, and in the cache that this
module fills; peers in the cache only, since tests rely on their version, and so are the programs of a node. What is
built are `apiserver/`, `peers/`, `etcd35/`, `kubernetes/`, `containers/`, `provisioning/` and `crictl/`: there is no
package of the API server, but its source is a Go module like any other. The cache is known by the content of those
files, so another version is another directory; of each module, the few that were used last stay.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from integration.cluster import toolchain
from integration.hosts import process
from integration.hosts.container.image import cache_directory
from integration.hosts.errors import Unavailable
from integration.hosts.requirements import Say

PROGRAMS: Final = ("kube-apiserver", "etcd")
PEERS: Final = ("kubectl-drain", "kustomize", "medik8s-lease")
NODE_PROGRAMS: Final = ("kubelet", "kube-scheduler", "kube-controller-manager")
PROVISIONING_PROGRAMS: Final = ("butane",)
CONTAINER_PROGRAMS: Final = ("pause", "workload", "runc-without-limits")
KEPT: Final = 3  # versions of a module in the cache: other checkouts of this machine may use another one
BUILD_TIMEOUT: Final = 3600.0
# Two compilers at a time and an early garbage collection: it has to fit beside other work on a small machine.
BUILD_ENV: Final = {"GOFLAGS": "-p=2", "GOMEMLIMIT": "3GiB", "GOGC": "50", "CGO_ENABLED": "0"}


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module of ours that makes ``programs`` of the modules that it requires."""

    name: str
    programs: tuple[str, ...]
    stamped: bool = False
    """The programs report the version of Kubernetes that go.mod requires, as released ones do."""
    packages: tuple[str, ...] = ()
    """Programs of other modules, built as they are. None: those of the directories here."""

    @property
    def source(self) -> Path:
        return Path(__file__).parent / self.name

    @property
    def cached(self) -> Path:
        digest = hashlib.sha256(platform.machine().encode())
        for path in sorted(p for p in self.source.rglob("*") if p.suffix in {".go", ".mod", ".sum"}):
            digest.update(f"{path.relative_to(self.source)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
        return cache_directory().with_name("cluster") / f"{self.prefix}-{digest.hexdigest()[:16]}"

    @property
    def prefix(self) -> str:
        return "tools" if self.programs == PROGRAMS else self.name

    def find(self, program: str) -> Path:
        """Raises Unavailable with how to get it."""
        path = self.cached / program
        if not path.is_file():
            raise Unavailable(f"no {program} in {self.cached}; `make cluster-tools` builds it (minutes, once)")
        os.utime(self.cached)
        return path

    def needed(self) -> tuple[int, int, int]:
        match = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?$", (self.source / "go.mod").read_text(), re.MULTILINE)
        assert match is not None, "go.mod has a go line"
        return int(match[1]), int(match[2]), int(match[3] or 0)

    def link_flags(self) -> str:
        if not self.stamped:
            return "-s -w"
        match = re.search(
            r"^\s*k8s\.io/kubernetes v((\d+)\.(\d+)\.\d+)$", (self.source / "go.mod").read_text(), re.MULTILINE
        )
        assert match is not None, "go.mod requires a release of Kubernetes"
        values = {"gitVersion": f"v{match[1]}", "gitMajor": match[2], "gitMinor": match[3]}
        return " ".join(
            ["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())]
        )


CONTROL_PLANE: Final = Module("apiserver", PROGRAMS)
PEER_MODULE: Final = Module("peers", PEERS)
OLDER_ETCD: Final = Module("etcd35", ("etcd",))
NODE_MODULE: Final = Module("kubernetes", NODE_PROGRAMS, stamped=True)
CONTAINER_MODULE: Final = Module("containers", CONTAINER_PROGRAMS)
PROVISIONING_MODULE: Final = Module("provisioning", PROVISIONING_PROGRAMS)
CRICTL_MODULE: Final = Module("crictl", ("crictl",), packages=("sigs.k8s.io/cri-tools/cmd/crictl",))


@dataclass(frozen=True, slots=True)
class Binaries:
    kube_apiserver: Path
    etcd: Path
    origin: str  # where they were found, for the person who wonders


def find() -> Binaries:
    """Raises Unavailable with what is missing and how to get it."""
    for path, origin in _places():
        apiserver, etcd = (shutil.which(name, path=path) for name in PROGRAMS)
        if apiserver and etcd:
            return Binaries(Path(apiserver), Path(etcd), origin)
    raise Unavailable(
        f"no {' and no '.join(PROGRAMS)} in $KUBEBUILDER_ASSETS, in PATH or in {CONTROL_PLANE.cached}; "
        "`make cluster-tools` builds them (minutes, once)"
    )


def build(say: Say) -> Binaries:
    """Return the program of `find`, and build it if it is missing. Raises Unavailable where it cannot be built."""
    try:
        return find()
    except Unavailable:
        pass
    _filled(CONTROL_PLANE, say)
    return find()


def find_peer(name: str) -> Path:
    """Raises Unavailable with how to get it."""
    return PEER_MODULE.find(name)


def fill(module: Module, say: Say) -> list[Path]:
    """The programs of a module, built unless they are in the cache. Raises Unavailable where they cannot be built."""
    _filled(module, say)
    return [module.find(name) for name in module.programs]


def find_older_etcd() -> Path:
    """The etcd of the previous minor release. Raises Unavailable with how to get it."""
    return OLDER_ETCD.find("etcd")


def _filled(module: Module, say: Say) -> None:
    target = module.cached
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _compile(module, target, say)
            _prune(module)


def _compile(module: Module, target: Path, say: Say) -> None:
    program, env = toolchain.go(say, module.needed())
    unfinished = target.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    say(f"building {' and '.join(module.programs)}: some minutes, once")
    started = time.monotonic()
    build = [
        "build",
        "-C",
        str(module.source),
        "-mod=readonly",
        "-trimpath",
        "-ldflags",
        module.link_flags(),
        "-o",
        f"{unfinished}/",
    ]
    process.run(
        ["nice", "-n", "19", str(program), *build, *(module.packages or (f"./{name}" for name in module.programs))],
        timeout=BUILD_TIMEOUT,
        env={**os.environ, **env, **BUILD_ENV},
    )
    unfinished.rename(target)
    say(f"built in {(time.monotonic() - started) / 60:.1f} minutes")


def _prune(module: Module) -> None:
    """Remove all but the versions that were used last. A server that runs from a removed file continues."""
    versions = [path for path in module.cached.parent.glob(f"{module.prefix}-*") if not path.suffix]
    for path in sorted(versions, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        shutil.rmtree(path)


def _places() -> Iterator[tuple[str, str]]:
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        yield assets, "KUBEBUILDER_ASSETS"
    yield os.environ.get("PATH", os.defpath), "PATH"
    yield str(CONTROL_PLANE.cached), "the cache"


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["crictl"]:
            others = fill(CRICTL_MODULE, print)
        else:
            found = build(print)
            for path in (found.kube_apiserver, found.etcd):
                print(f"{path}: {path.stat().st_size / 1e6:.0f} MB, from {found.origin}")
            modules = (PEER_MODULE, OLDER_ETCD, NODE_MODULE, CONTAINER_MODULE, PROVISIONING_MODULE)
            others = [path for module in modules for path in fill(module, print)]
    except Unavailable as error:
        raise SystemExit(f"cluster tools: {error}") from None
    for path in others:
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")
