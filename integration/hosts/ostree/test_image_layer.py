# SPDX-License-Identifier: Apache-2.0
"""The image layer of `make image` on an OS image: a host that is rebased to it runs nodeagent from /usr, and nodeagent
updates the host to the next OS with the same layer."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import disk, updates
from integration.hosts.ostree.conftest import REGISTRY, SMALL, OstreeHostMaker
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.package.newcomer import first_week
from integration.trees import parts
from integration.trees.image_registry import Published, Registry
from integration.trees.ostree_repo import REF, OstreeRepo
from integration.trees.tree import A, B, Tree

pytestmark = pytest.mark.long

TIMEOUT = 600.0  # seconds
PACKAGING = Path(__file__).parents[3] / "packaging"
BUILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import build_image
build_image.build(Path(sys.argv[2]), Path(sys.argv[3]))
"""
NAME = "quay.io/example/with-nodeagent"
ORIGIN = "/run/origin"
WANTS = "/usr/lib/systemd/system/multi-user.target.wants/nodeagent.service"


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Path:
    """The layer out of the archive that `make image` writes."""
    out = tmp_path_factory.mktemp("image")
    argv = [sys.executable, "-c", BUILD, str(PACKAGING), str(package), str(out)]
    subprocess.run(argv, check=True, capture_output=True, timeout=TIMEOUT)
    (archive,) = out.glob("*.oci.tar")
    with tarfile.open(archive) as members:

        def blob(digest: str) -> bytes:
            file = members.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")
            assert file is not None
            return file.read()

        index = members.extractfile("index.json")
        assert index is not None
        (image,) = json.loads(index.read())["manifests"]
        (one,) = json.loads(blob(image["digest"]))["layers"]
        (out / "layer.tar.gz").write_bytes(blob(one["digest"]))
    return out / "layer.tar.gz"


@pytest.fixture
def publish_with_layer(ostree_repo: OstreeRepo, registry: Registry, layer: Path) -> Callable[[Tree], Published]:
    """Makes the image of a tree, without nodeagent in it, with the layer on top. It is imported as ostree-ext imports
    a layer: as a commit of its own that is merged over the others."""

    def publish(tree: Tree) -> Published:
        commit = ostree_repo.commit(tree.having(parts.stand_in({"REGISTRY": REGISTRY})))
        branch = f"{REF}/image-layer"
        with ostree_repo.toolbox(layer.parent, ostree_repo.repo) as tools:
            repo = f"--repo={ostree_repo.repo}"
            tree_of = (f"--tree=tar={layer}", "--tar-autocreate-parents", "--no-bindings", "--no-xattrs")
            tools.run("ostree", repo, "commit", f"--branch={branch}", "--parent=none", *tree_of)
        return registry.publish(commit, NAME, tree.version, f"--custom={branch}")

    return publish


@pytest.fixture
def host(
    make_ostree_host: OstreeHostMaker,
    ostree_repo: OstreeRepo,
    registry: Registry,
    publish_with_layer: Callable[[Tree], Published],
) -> OstreeHost:
    """A host that was rebased to an image with the layer, as `rpm-ostree rebase` and `bootc switch` do it."""
    plain = ostree_repo.commit(A.having(parts.stand_in({"REGISTRY": REGISTRY})))
    base = registry.publish(plain, "quay.io/example/plain", A.version)
    host = make_ostree_host(registry.pulled(base), read_only={REGISTRY: registry.folder})
    host.boot()
    assert not host.exists("/usr/bin/nodeagent")

    pulled = registry.pulled(publish_with_layer(A))
    with ostree_repo.toolbox(host.root, pulled.repo) as tools:
        repo = f"--repo={host.root / 'ostree/repo'}"
        tools.run("ostree", repo, "pull-local", *disk.UNCHECKED, str(pulled.repo))
    host.write(ORIGIN, pulled.origin)
    host.run(["ostree", "admin", "deploy", "--stage", f"--origin-file={ORIGIN}", pulled.checksum])
    agent.settings(host, SMALL)
    with host.rebooting():
        host.run(["systemctl", "reboot"])
    assert host.booted == pulled.checksum
    agent.wait_daemon(host)
    return host


def test_the_first_week_of_a_newcomer(host: OstreeHost) -> None:
    first_week(host)


def test_the_host_is_updated_with_the_layer(host: OstreeHost, publish_with_layer: Callable[[Tree], Published]) -> None:
    assert host.run(["readlink", f"/proc/{host.unit(agent.UNIT, 'MainPID')['MainPID']}/exe"]).stdout.startswith("/usr/")
    host.run(["nodeagent", "selfcheck"])
    assert host.run(["readlink", WANTS]).stdout == "../nodeagent.service\n"

    agent.apply(host, updates.config("b", publish_with_layer(B)))
    agent.wait_done(host, "b", updates.WAIT)
    updates.check(host, "b", B)
    checked = json.loads(host.run(["nodeagent", "selfcheck", "--json"], check=False).stdout)
    failures = {check["id"] for check in checked["checks"] if check["result"] == "failed"}
    assert failures == {"reach.registry"}, "it is a directory, not a server"

    # The link of the vendor cannot be disabled.
    host.run(["systemctl", "mask", agent.UNIT])
    with host.rebooting():
        host.run(["systemctl", "reboot"])
    assert not host.is_active(agent.UNIT)
