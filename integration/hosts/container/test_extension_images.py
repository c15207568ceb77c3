# SPDX-License-Identifier: Apache-2.0
"""Images of system extensions on a real systemd: squashfs on loop devices, merged by the real systemd-sysext."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import HostMaker, unavailable
from integration.hosts.container.container_host import Host
from integration.hosts.errors import Unavailable
from integration.hosts.nodeagent_client import UnitSpec, machine_config

SYSEXT = "systemd-sysext.service"
PATH = "/var/lib/extensions/app.raw"
KEPT = "/var/lib/nodeagent-fetched"
VERSION = "/usr/share/app/version"
PORT = 8099
LOOPS = 64
# It reads the image when it starts, and does not run with a bad one.
APP = f"[Service]\nExecStart=/bin/sh -c 'cp {VERSION} /run/app && ! grep bad /run/app && exec sleep infinity'\n"
# The file in which an image says what it is, and its own version there.
_RELEASE, _OWN = "/usr/lib/extension-release.d/extension-release.{}", "SYSEXT_IMAGE_VERSION"
POLICY = agent.policy(files={PATH: [f"Reload {SYSEXT}", "Restart app.service"]})


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Nodes of loop devices. Those of this machine come and go, and a container makes none."""
    if shutil.which("mksquashfs") is None or shutil.which("losetup") is None:
        unavailable(Unavailable("mksquashfs or losetup is missing"))
    if subprocess.run(["losetup", "--find"], capture_output=True, check=False).returncode != 0:
        unavailable(Unavailable("this machine has no loop devices"))
    control = Path("/dev/loop-control")
    nodes = {str(control): control}
    directory = tmp_path_factory.mktemp("dev")
    for number in range(LOOPS):
        node = directory / f"loop{number}"
        os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(7, number))
        nodes[f"/dev/{node.name}"] = node
    return nodes


class Images:
    """A directory of images, and a web server of it on the loopback of a host."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server: subprocess.Popen[bytes] | None = None

    def make(
        self,
        version: str,
        *,
        name: str = "app",
        release: str = "ID=_any\nEXTENSION_RELOAD_MANAGER=1",
        linked: bool = False,
    ) -> str:
        """Make the image of a version, and return its hash. ``linked``: its extension-release is a link."""
        tree = self.directory / f"tree-{version}"
        for path, text in ((VERSION, version), (_RELEASE.format(name), f"{release}\n{_OWN}={version}")):
            file = tree / path.lstrip("/")
            file.parent.mkdir(parents=True)
            file.write_text(f"{text}\n")
        if linked:
            named = tree / f"usr/lib/extension-release.d/extension-release.{name}"
            named.symlink_to(named.rename(named.with_name("release")).name)
        image = self.directory / f"{version}.raw"
        subprocess.run(["mksquashfs", tree, image, "-noappend", "-quiet", "-no-progress", "-all-root"], check=True)
        return f"sha256-{hashlib.sha256(image.read_bytes()).hexdigest()}"

    def serve(self, host: Host) -> None:
        at = ["--bind", "127.0.0.1", "--directory", str(self.directory), str(PORT)]
        network = f"--net=/proc/{host.container.leader}/ns/net"
        self.server = subprocess.Popen(
            ["nsenter", network, sys.executable, "-m", "http.server", *at], stderr=subprocess.DEVNULL
        )

    def close(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server.wait()


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Images]:
    made = Images(tmp_path)
    yield made
    made.close()


def config(name: str, **images: tuple[str, str]) -> str:
    """Return a config that enables systemd-sysext, with images by their names: the version and the hash of each."""
    made = json.loads(machine_config(name, files={}, units={SYSEXT: UnitSpec(enabled=True)}))
    files = [
        {
            "path": f"/var/lib/extensions/{image}.raw",
            "contents": {"source": f"http://127.0.0.1:{PORT}/{version}.raw", "verification": {"hash": wanted}},
        }
        for image, (version, wanted) in images.items()
    ]
    made["spec"]["config"]["storage"] = {"files": files}
    return json.dumps(made)


def plan(host: Host, text: str) -> dict[str, Any]:
    """Return the only image of a plan."""
    host.write("/root/planned.json", text)
    answer = json.loads(host.run(["nodeagent", "plan", "--json", "/root/planned.json"]).stdout)
    (image,) = answer["images"]
    return dict(image)


@pytest.mark.long
def test_images_are_merged_replaced_reverted_and_unmerged(
    make_node: HostMaker, devices: Mapping[str, Path], images: Images
) -> None:
    files = {agent.POLICY: POLICY, "/etc/systemd/system/app.service": APP}
    host = make_node(files=files, devices=devices, settings={"reboot": {"allow": False}})
    images.serve(host)
    one, two, bad = images.make("1"), images.make("2"), images.make("bad")
    # Neither can be compared before: nodeagent follows no link, and systemd-sysext knows an image by its file's name.
    linked = images.make("3", name="tool", release="ID=another", linked=True)
    misnamed = images.make("another")

    # The first image, with the unit that merges it.
    agent.apply(host, config("one", app=("1", one)))
    agent.wait_done(host, "one")
    assert (host.read_text(VERSION), host.read_text("/run/app"), host.is_active("app.service")) == ("1\n", "1\n", True)
    assert host.run(["readlink", PATH]).stdout.strip() == f"{KEPT}/{one}.raw"

    planned = plan(host, config("two", app=("2", two)))
    assert (planned["before"]["digest"], planned["before"]["version"]) == (one, "1")
    assert planned["before"]["bytes"] == (images.directory / "1.raw").stat().st_size
    assert planned["after"] == {"digest": two, "bytes": None, "version": ""}
    assert (planned["units"], planned["reloads_manager"]) == ([SYSEXT, "app.service"], None)
    # Of a merge, not of a plan.
    assert (host.read_text(VERSION), host.read_text("/run/app")) == ("1\n", "1\n")
    assert "/run/nodeagent-extension-release" not in host.read_text("/proc/self/mountinfo")
    agent.apply(host, config("two", app=("2", two)))
    agent.wait_done(host, "two")
    assert (host.read_text(VERSION), host.read_text("/run/app")) == ("2\n", "2\n")
    planned = plan(host, config("back", app=("1", one)))
    assert (planned["before"]["version"], planned["after"]["version"]) == ("2", "1")
    assert (planned["reloads_manager"], planned["names_units"]) == (True, [])

    # The unit does not run with the next one. systemd-sysext ignores one for another OS, and fails with one under
    # another name.
    worse = {
        "bad": ({"app": ("bad", bad)}, "UnitUnhealthy"),
        "linked": ({"app": ("2", two), "tool": ("3", linked)}, "ExtensionNotMerged"),
        "misnamed": ({"app": ("2", two), "tool": ("another", misnamed)}, "JobFailed"),
    }
    for name, (named, reason) in worse.items():
        agent.apply(host, config(name, **named))
        entry = agent.wait_outcome(host, name)
        assert (entry["outcome"], entry["reason"]) == ("reverted", reason), entry
        assert (host.read_text(VERSION), host.read_text("/run/app")) == ("2\n", "2\n")
        assert host.is_active("app.service")

    # Another content, and an image that the server does not have yet.
    agent.apply(host, config("other", app=("1", f"sha256-{'1' * 64}")))
    assert agent.wait_outcome(host, "other")["reason"] == "ExtensionDigest"
    agent.apply(host, config("late", app=("4", f"sha256-{'0' * 64}")))
    agent.wait_phase(host, "Leasing", reason="ExtensionUnreachable")
    four = images.make("4")
    agent.apply(host, config("four", app=("4", four)))
    agent.wait_done(host, "four")
    assert host.read_text(VERSION) == "4\n"

    # A boot merges it, too.
    with host.rebooting():
        host.run(["systemctl", "reboot"])
    agent.wait_daemon(host)
    assert host.read_text(VERSION) == "4\n"
    agent.apply(host, config("none"))
    agent.wait_done(host, "none")
    assert not host.exists(VERSION)
    assert not host.exists(PATH)
    assert host.reboots == 1, "the one of this test"


@pytest.mark.long
def test_an_image_for_another_os_is_refused_before_anything_is_written(
    make_node: HostMaker, devices: Mapping[str, Path], images: Images
) -> None:
    host = make_node(devices=devices, settings={"reboot": {"allow": False}})
    images.serve(host)
    release = dict(line.split("=", 1) for line in host.read_text("/usr/lib/os-release").splitlines())
    own, version = release["ID"], release["VERSION_ID"].strip('"')
    unfit = {
        "other": ("ID=another", f"ID is 'another', and this host has '{own}'"),
        "older": (f"ID={own}\nVERSION_ID=1", f"VERSION_ID is '1', and this host has '{version}'"),
        "foreign": ("ID=_any\nARCHITECTURE=alpha", "ARCHITECTURE is 'alpha'"),
    }
    for name, (text, cause) in unfit.items():
        made = images.make(name, release=text)
        agent.apply(host, config(name, app=(name, made)))
        entry = agent.wait_outcome(host, name)
        assert (entry["outcome"], entry["reason"]) == ("refused", "ExtensionUnfit"), entry
        assert cause in host.run(["nodeagent", "status"], check=False).stdout
        assert not host.exists(PATH)
        # So does systemd itself.
        host.write("/run/extensions/app.raw", (images.directory / f"{name}.raw").read_bytes())
        host.run(["systemd-sysext", "refresh"], check=False)
        assert not host.exists(VERSION)
        host.run(["rm", "/run/extensions/app.raw"])

    fit = images.make("fit", release=f'ID="{own}"\nVERSION_ID="{version}"')
    agent.apply(host, config("fit", app=("fit", fit)))
    agent.wait_done(host, "fit")
    assert host.read_text(VERSION) == "fit\n"
    assert "/run/nodeagent-extension-release" not in host.read_text("/proc/self/mountinfo")
    assert not host.exists("/run/nodeagent-extension-release")


@pytest.mark.long
def test_an_image_that_ignition_wrote_is_taken_over(
    make_node: HostMaker, devices: Mapping[str, Path], images: Images
) -> None:
    host = make_node(devices=devices)
    wanted = images.make("1")
    host.write(PATH, (images.directory / "1.raw").read_bytes())
    host.run(["systemctl", "enable", "--now", SYSEXT])
    assert host.read_text(VERSION) == "1\n"
    # No server is there.
    agent.apply(host, config("one", app=("1", wanted)))
    agent.wait_done(host, "one")
    assert host.run(["readlink", PATH]).stdout.strip() == f"{KEPT}/{wanted}.raw"
    assert host.read_text(VERSION) == "1\n"
    assert agent.history(host)[0]["outcome"] == "done"
