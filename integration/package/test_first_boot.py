# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/usage/install-first-boot.md: Butane translates the snippets, Ignition applies them to a host.

The first boot of that host starts the agent.
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.cluster import programs
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import Image
from integration.hosts.errors import CommandFailed, Unavailable
from integration.package import provisioning
from integration.package.conftest import SOURCE, Package, cannot
from integration.package.test_install_pages import commands

pytestmark = pytest.mark.long

TIMEOUT = 120.0  # seconds
PAGE = SOURCE / "docs/usage/install-first-boot.md"
IMAGE = "var/lib/extensions/nodeagent.raw"
KUBECONFIG = "clusters: []\n"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    image = provisioning.tools()
    yield image
    image.close()


@pytest.fixture(scope="module")
def server(package: Package) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(package.out))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def configs(package: Package, server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which the commands of the page were run."""
    try:
        (butane,) = programs.fill(programs.PROVISIONING_MODULE, print)
    except Unavailable as error:
        cannot(f"butane cannot be built here: {error}")
    directory = tmp_path_factory.mktemp("first-boot")
    (directory / "dist").symlink_to(package.out)
    (directory / "packaging").symlink_to(SOURCE / "packaging")
    (directory / "kubeconfig").write_text(KUBECONFIG)
    make, *alone = commands("On the build machine", PAGE)
    assert make == "make package"
    for command in (*alone, *commands("For a node of a cluster", PAGE)):
        # The server of the test has no certificate.
        called = command.replace("s|SERVER|images.example.com|", f"s|https://SERVER|http://{server}|")
        subprocess.run(
            ["sh", "-euc", called],
            cwd=directory,
            env={**os.environ, "PATH": f"{butane.parent}:{os.environ['PATH']}"},
            check=True,
            timeout=TIMEOUT,
        )
    return directory


def ignite(host: Host, config: Path) -> None:
    """Apply a config to the files of a host that is off, as before its first boot. Raises CommandFailed."""
    shutil.copy(config, host.root / "run/config.ign")
    # Ignition has a program for the build of containers, which writes everything but disks.
    host.run(["ignition-validate", "/run/config.ign"])
    argv = ["ignition-apply", "--root", "/", "/run/config.ign"]
    host.run(argv, env={"container": "1"}, timeout=TIMEOUT)


def test_the_first_boot_starts_the_agent(image: Image, package: Package, configs: Path) -> None:
    with Host(image) as host:
        ignite(host, configs / "nodeagent.ign")
        written = host.root / IMAGE
        assert written.read_bytes() == package.raw.read_bytes()
        # The container has no loop devices, so systemd-sysext gets the content as a directory.
        unpack = [
            "unsquashfs",
            "-quiet",
            "-no-progress",
            "-no-xattrs",
            "-dest",
            str(written.with_suffix("")),
            str(written),
        ]
        subprocess.run(unpack, check=True, capture_output=True, timeout=TIMEOUT)
        written.unlink()
        # A first boot: PID 1 applies the presets, Ignition's among them, and services update /var.
        (host.root / "etc/machine-id").write_text("uninitialized\n")
        for stamp in ("etc/.updated", "var/.updated"):
            (host.root / stamp).unlink()
        host.boot()
        host.wait_for(lambda: host.is_active("nodeagent.service"), "the first boot started the agent")
        host.run(["nodeagent", "selfcheck"])
        with host.rebooting():
            host.run(["systemctl", "reboot"])
        host.wait_for(lambda: host.is_active("nodeagent.service"), "the second boot started the agent, too")


def test_the_credentials_of_a_node(image: Image, configs: Path) -> None:
    with Host(image) as host:
        ignite(host, configs / "nodeagent-cluster.ign")
        kubeconfig = host.root / "etc/nodeagent/kubeconfig"
        assert (kubeconfig.read_text(), kubeconfig.stat().st_mode & 0o777) == (KUBECONFIG, 0o600)
        assert (host.root / IMAGE).is_file()
        assert (host.root / "etc/nodeagent/config.d/60-cluster.yaml").is_file()


def test_ignition_refuses_another_image(image: Image, configs: Path, tmp_path: Path) -> None:
    text = (configs / "nodeagent.ign").read_text()
    begin = text.index("sha256-") + len("sha256-")
    other = tmp_path / "other.ign"
    other.write_text(text[:begin] + "0" * 64 + text[begin + 64 :])
    with Host(image) as host:
        with pytest.raises(CommandFailed, match="hash verification failed"):
            ignite(host, other)
        assert not (host.root / IMAGE).exists()
