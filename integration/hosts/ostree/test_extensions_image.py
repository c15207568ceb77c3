# SPDX-License-Identifier: Apache-2.0
"""Packages of the extensions image, with real packages, a real skopeo and a registry that wants the pull secret."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import small_registry, updates
from integration.hosts.ostree.conftest import OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees import rpms
from integration.trees.tree import A, Tree

PORT, USER = 5000, "puller:a-secret-of-the-tests"
NAME = f"127.0.0.1:{PORT}/example/extensions"
SERVED = "/var/lib/small-registry"
REGISTRY = ("python3", f"{SERVED}.py", SERVED, str(PORT), SERVED, USER)
STATE = "/var/lib/private/nodeagent-extensions"
REPOS = "/etc/yum.repos.d"
MARKERS = "/usr/share/rpmostreed-standin/packages"
PULL_SECRET = "/var/lib/kubelet/config.json"
WITH_SKOPEO: Tree = replace(A, packages=("skopeo",))
FILES = {
    agent.POLICY: updates.POLICY,
    # No repository on the network has any package.
    "/etc/rpmostreed-standin-packages.json": '{"packages": []}',
    "/etc/containers/policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}',
    "/etc/containers/registries.conf.d/tests.conf": f'[[registry]]\nlocation = "127.0.0.1:{PORT}"\ninsecure = true\n',
}


@pytest.fixture(scope="session")
def extensions(tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]) -> rpms.OciImage:
    directory = tmp_path_factory.mktemp("packages")
    with contextlib.closing(rpms.tools(say)) as tools:
        rpms.repository(tools, ["kata-containers", "usbguard"], directory)
    return rpms.image_of(directory)


@pytest.fixture
def node(make_ostree_node: OstreeHostMaker, publish: Publish, extensions: rpms.OciImage) -> OstreeHost:
    host = make_ostree_node(WITH_SKOPEO, files=FILES)
    for digest, content in {**extensions.blobs, extensions.digest: extensions.manifest}.items():
        host.write(f"{SERVED}/{small_registry.BLOBS}/{digest.removeprefix('sha256:')}", content)
    host.write(f"{SERVED}.py", Path(small_registry.__file__).read_text())
    host.run(["systemd-run", "--unit=small-registry", *REGISTRY])
    agent.apply(host, config("a", publish))
    agent.wait_done(host, "a")
    return host


def config(name: str, publish: Publish, image: str = "", *, password: str = USER, **spec: Any) -> str:
    login = base64.b64encode(password.encode()).decode()
    secret = json.dumps({"auths": {f"127.0.0.1:{PORT}": {"auth": login}}})
    if image:
        spec["baseOSExtensionsContainerImage"] = f"{NAME}@{image}"
    files: dict[str, Any] = {updates.MINE: f"mine of {name}\n", PULL_SECRET: agent.FileSpec(secret, 0o600)}
    return agent.machine_config(name, files=files, osImageURL=publish(WITH_SKOPEO).by_digest, **spec)


def left_behind(node: OstreeHost) -> list[str]:
    found = node.run(["find", STATE, "/run/nodeagent/extensions", f"{REPOS}/nodeagent-extensions.repo"], check=False)
    # systemd keeps the directory, and the next run replaces the error of the last one.
    return [path for path in found.stdout.split() if path not in (STATE, f"{STATE}/error")]


def reasons(node: OstreeHost) -> set[str]:
    return {str(entry.get("NODEAGENT_REASON", "")) for entry in node.journal("nodeagent.service")}


def test_packages_come_from_the_image(node: OstreeHost, publish: Publish, extensions: rpms.OciImage) -> None:
    wanted: dict[str, Any] = {"extensions": ["sandboxed-containers"]}
    agent.apply(node, config("no-image", publish, **wanted))
    assert agent.wait_phase(node, "Degraded")["reason"] == "PackageUnavailable"

    agent.apply(node, config("kata", publish, extensions.digest, **wanted))
    updates.wait_current(node, "kata")
    assert (node.run(["ls", MARKERS]).stdout.split(), node.reboots) == (["kata-containers"], 1)
    assert left_behind(node) == []
    pulled = node.read_text(f"{SERVED}/requests").count("GET")
    assert pulled >= len(extensions.blobs) + 1

    # An update that layers nothing does not fetch it again.
    agent.apply(node, config("file", publish, extensions.digest, kernelArguments=[], **wanted))
    agent.wait_done(node, "file")
    assert node.read_text(f"{SERVED}/requests").count("GET") == pulled


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("another digest", "ImageNotFound"), ("another password", "Unauthorized"), ("no packages", "PackageUnavailable")],
)
def test_the_host_is_unchanged_if_that_fails(
    node: OstreeHost, publish: Publish, extensions: rpms.OciImage, fault: str, reason: str
) -> None:
    before = node.deployments()
    digest = f"sha256:{'0' * 64}" if fault == "another digest" else extensions.digest
    password = "puller:another" if fault == "another password" else USER
    names = ["sysstat" if fault == "no packages" else "usbguard"]
    agent.apply(node, config("bad", publish, digest, password=password, extensions=names))
    now = agent.wait_phase(node, "Degraded")
    assert (now["reason"], now["current"], node.reboots) == (reason, "a", 0)
    assert node.deployments() == before
    assert [path for path in left_behind(node) if "auth" in path or "yum" in path] == []


def test_a_registry_that_is_away_is_waited_for(node: OstreeHost, publish: Publish, extensions: rpms.OciImage) -> None:
    node.write(f"{SERVED}/{small_registry.FAULTS}", '{"status": 503}')
    agent.apply(node, config("usb", publish, extensions.digest, extensions=["usbguard"]))
    node.wait_for(lambda: "RegistryUnreachable" in reasons(node), "RegistryUnreachable in the journal", updates.WAIT)
    node.power_cut()
    node.run(["systemd-run", "--unit=small-registry", *REGISTRY])
    node.run(["rm", f"{SERVED}/{small_registry.FAULTS}"])
    updates.wait_current(node, "usb")
    assert (node.run(["ls", MARKERS]).stdout.split(), left_behind(node)) == (["usbguard"], [])
