# SPDX-License-Identifier: Apache-2.0
"""What a host with bootc can do without bootc: pull by the real `ostree container`, and stage by the real libostree."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.errors import CommandFailed
from integration.hosts.ostree.conftest import IMAGE, Publish
from integration.hosts.ostree.disk import OSNAME
from integration.hosts.ostree.ostree_host import STAGED, OstreeHost
from integration.hosts.ostree.registry_faults import behave, blobs, misbehave, requests
from integration.hosts.ostree.test_harness import reboot
from integration.trees.encapsulated import Encapsulated
from integration.trees.image_registry import Published
from integration.trees.ostree_repo import Commit, OstreeRepo
from integration.trees.tree import CONTENT, A, B

REPO = "/ostree/repo"
REMOUNT = "mount -o remount,rw /sysroot && exec"
LOCK = "/run/ostree/staged-deployment-locked"
PULL_UNIT = "pull.service"
# What the programs print, for tests of ring 1 as well.
TEXTS: Mapping[str, str] = json.loads(Path(__file__).with_name("bootc_texts.json").read_text())
# `ostree commit --bootable`, with which all trees are made, refuses it.
COMMIT_WITHOUT_KERNEL = """\
set -e
ostree --repo="$1" checkout "$2" /tree
rm -r /tree/usr/lib/modules
ostree --repo="$1" commit --branch="$3" --tree=dir=/tree --no-xattrs --timestamp=@0
"""


def pull(host: OstreeHost, image: Published, *, digest: str = "", wait: bool = True) -> tuple[int, str]:
    """Pull an image in a unit of its own. Return the exit status and the output, which are those of systemd-run."""
    reference = f"ostree-unverified-registry:{image.name}@{digest or image.digest}"
    command = f"{REMOUNT} ostree container image pull --quiet {REPO} {reference}"
    waiting = ("--wait", "--pipe", "--quiet") if wait else ()
    unit = ("systemd-run", f"--unit={PULL_UNIT}", "--collect", "--property=PrivateMounts=yes", *waiting)
    done = host.run([*unit, "sh", "-c", command], check=False)
    return done.returncode, done.stdout + done.stderr


def stage(host: OstreeHost, image: Published, *options: str) -> None:
    """Stage a pulled image with the origin of an installation from it."""
    reference = f"ostree-unverified-registry:{image.by_digest}"
    host.write("/run/origin", f"[origin]\ncontainer-image-reference={reference}\n")
    host.run(["ostree", "admin", "deploy", "--stage", "--origin-file=/run/origin", *options, commit_of(host, image)])


def commit_of(host: OstreeHost, image: Published) -> str:
    listed = host.run(["ostree", f"--repo={REPO}", "refs", "--list", "ostree/container/image"]).stdout.split()
    (ref,) = [ref for ref in listed if image.digest.removeprefix("sha256:") in ref]
    return host.run(["ostree", f"--repo={REPO}", "rev-parse", ref]).stdout.strip()


def anonymous(output: str) -> str:
    """Replace digests and sizes, which are those of the trees."""
    return re.sub(r"\([\d.]+.[kMG]?B\)", "(SIZE)", re.sub("[0-9a-f]{64}", "DIGEST", output))


def test_an_update_without_bootc(bootc_host: OstreeHost, publish_bootc: Publish) -> None:
    host, b = bootc_host, publish_bootc(B)
    (before,) = host.deployments()
    assert anonymous(pull(host, b)[1]) == TEXTS["pulled"]
    assert host.run(["touch", "/sysroot/new"], check=False).returncode == 1, "the remount is not seen outside"
    assert len(blobs(host)) == 3, "the config, the commit, and the one layer that differs"

    stage(host, b, "--lock-finalization", "--karg-append=added=1", "--karg-delete=quiet")
    staged = host.deployments()[0]
    assert (staged.checksum, staged.staged, staged.locked) == (commit_of(host, b), True, True)
    assert host.exists(LOCK)
    reboot(host)
    assert [deployment.checksum for deployment in host.deployments()] == [before.checksum]

    # The layers are still there.
    served = len(requests(host))
    assert anonymous(pull(host, b)[1]) == TEXTS["no changes"]
    assert len(requests(host)) == served + 1
    stage(host, b, "--lock-finalization", "--karg-append=added=1", "--karg-delete=quiet")
    host.run(["ostree", "admin", "lock-finalization", "--unlock"])
    reboot(host)
    assert host.read_text(CONTENT) == B.files[CONTENT]
    assert "added=1" in host.cmdline
    assert "quiet" not in host.cmdline


def test_a_new_tree_runs_in_a_sandbox(bootc_host: OstreeHost, publish_bootc: Publish) -> None:
    """As rpm-ostree checks a tree before it counts. bootc has no such check."""
    host, b = bootc_host, publish_bootc(B)
    pull(host, b)
    stage(host, b, "--lock-finalization")
    usr = f"/ostree/deploy/{OSNAME}/deploy/{host.deployments()[0].checksum}.0/usr"
    links = [word for name in ("lib", "lib64", "bin") for word in ("--symlink", f"usr/{name}", f"/{name}")]
    assert host.run(["bwrap", "--ro-bind", usr, "/usr", *links, "/usr/bin/true"]).returncode == 0
    missing = host.run(["bwrap", "--ro-bind", usr, "/usr", *links, "/usr/bin/not-there"], check=False)
    assert (missing.returncode, missing.stderr) == (1, TEXTS["sandbox"])


def test_a_pull_needs_a_writable_sysroot(bootc_host: OstreeHost, publish_bootc: Publish) -> None:
    reference = f"ostree-unverified-registry:{publish_bootc(B).by_digest}"
    done = bootc_host.run(["ostree", "container", "image", "pull", "--quiet", REPO, reference], check=False)
    assert (done.returncode, anonymous(done.stderr)) == (1, TEXTS["read-only"])


@pytest.mark.long
@pytest.mark.parametrize("fault", ["another digest", "wrong content", "401", "503"])
def test_a_pull_that_fails_stages_nothing(bootc_host: OstreeHost, publish_bootc: Publish, fault: str) -> None:
    host, b = bootc_host, publish_bootc(B)
    refs = host.run(["ostree", f"--repo={REPO}", "refs"]).stdout
    faults: Mapping[str, Mapping[str, Any]] = {
        "another digest": {},
        "wrong content": {"of": "/blobs/", "wrong": True},
        "401": {"status": 401},
        "503": {"status": 503},
    }
    misbehave(host, **faults[fault])
    status, output = pull(host, b, digest=f"sha256:{'0' * 64}" if fault == "another digest" else "")
    print(output)
    assert (status, anonymous(output)) == (1, TEXTS[fault])
    assert host.run(["ostree", f"--repo={REPO}", "refs"]).stdout == refs
    behave(host)
    assert pull(host, b)[0] == 0


def test_a_pull_that_is_killed_is_repeated(bootc_host: OstreeHost, publish_bootc: Publish) -> None:
    host, b = bootc_host, publish_bootc(B)
    misbehave(host, of="/blobs/", hang=True)
    pull(host, b, wait=False)
    host.wait_for(lambda: any("/blobs/" in line for line in requests(host)), "a layer is on the way")
    host.run(["systemctl", "kill", "--signal=KILL", PULL_UNIT])
    host.wait_for(lambda: not host.is_active(PULL_UNIT), "the unit ends")
    assert host.run(["pgrep", "skopeo"], check=False).returncode == 1, "it was in the unit"
    behave(host)
    assert pull(host, b)[0] == 0


def test_undeploy_takes_a_staged_deployment_away(bootc_host: OstreeHost, publish_bootc: Publish) -> None:
    host, b = bootc_host, publish_bootc(B)
    pull(host, b)
    stage(host, b, "--lock-finalization")
    host.run(["ostree", "admin", "undeploy", "0"])
    assert (len(host.deployments()), host.exists(STAGED)) == (1, False)
    stage(host, b)
    assert host.deployments()[0].staged
    assert not host.deployments()[0].locked, "a lock goes with its deployment"


@pytest.mark.long
def test_an_image_without_a_kernel_is_not_staged(
    bootc_host: OstreeHost, bootc_repo: OstreeRepo, bootc_images: Encapsulated
) -> None:
    commit = bootc_repo.commit(A)
    ref = f"test/without-kernel/{commit.checksum[:16]}"
    with bootc_repo.toolbox(bootc_repo.repo) as tools:
        made = tools.said("sh", "-c", COMMIT_WITHOUT_KERNEL, "sh", str(bootc_repo.repo), commit.checksum, ref)
    image = bootc_images.publish(Commit(made, A.version, ref), IMAGE)
    assert pull(bootc_host, image)[0] == 0
    with pytest.raises(CommandFailed) as failed:
        stage(bootc_host, image)
    print(failed.value)
    assert TEXTS["no kernel"] in str(failed.value)
    assert not bootc_host.exists(STAGED)


def test_the_agent_is_at_rest_on_such_a_host(bootc_node: OstreeHost) -> None:
    assert agent.status(bootc_node)["phase"] == "Idle"
    assert bootc_node.run(["systemctl", "show", "--value", "-p", "LoadState", "rpm-ostreed"]).stdout == "not-found\n"
