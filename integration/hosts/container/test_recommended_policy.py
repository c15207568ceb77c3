# SPDX-License-Identifier: Apache-2.0
"""The recommended policy: after each action, the program really has the new content, and the host was not rebooted."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts import process
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import Image, derived_image
from integration.hosts.nodeagent_client import machine_config, wait_done

pytestmark = pytest.mark.long

# chronyd may not set the clock of a container, but reads its configuration all the same.
UNPRIVILEGED = "[Unit]\nConditionCapability=\n[Service]\nExecStart=\nExecStart=!/usr/sbin/chronyd -x -f {}\n"
# Settings that belong to the machine that runs the container, which cannot change them.
VENDOR = "/usr/lib/sysctl.d"
CHRONY = "/etc/systemd/system/chrony.service.d/50-ring.conf"


@pytest.fixture(scope="module")
def services_image(agent_image: Image) -> Iterator[Image]:
    """A host with chronyd, sshd and systemd-sysctl, and with NetworkManager, which only its test starts."""

    def install(root: Path) -> None:
        resolv = root / "etc/resolv.conf"
        shutil.copyfile("/etc/resolv.conf", resolv)
        for unit in ("ssh.service", "systemd-sysctl.service"):
            (root / "etc/systemd/system" / unit).unlink()
        for path in (root / VENDOR.lstrip("/")).glob("*.conf"):
            path.unlink()
        for command in (
            ["apt-get", "update", "-q"],
            ["apt-get", "install", "-q", "--yes", "chrony", "network-manager", "iproute2"],
            ["systemctl", "enable", "ssh.service", "chrony.service"],
            ["systemctl", "disable", "NetworkManager.service", "NetworkManager-wait-online.service"],
        ):
            environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
            process.run(["chroot", str(root), *command], timeout=300, env=environment)
        resolv.write_text("")

    image = derived_image(agent_image, "services", hashlib.sha256(Path(__file__).read_bytes()).digest(), install)
    yield image
    image.layers[-1].lock.close()


@pytest.fixture
def node(make_host: Callable[..., Host], services_image: Image) -> Host:
    host = make_host(services_image)
    agent.settings(host, {"recommended_policy": True})
    host.write(CHRONY, UNPRIVILEGED.format("/etc/chrony/chrony.conf"))
    host.boot()
    agent.wait_daemon(host)
    return host


def apply(host: Host, name: str, files: Mapping[str, str]) -> None:
    """Bring the files to the host, without a reboot."""
    before = host.reboots
    agent.write_desired(host, machine_config(name, files=dict(files)))
    wait_done(host, name)
    assert host.reboots == before


def output(host: Host, *command: str) -> str:
    return host.run(list(command)).stdout


def banner(host: Host, port: int) -> bool:
    """Whether sshd answers at this port."""
    script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && head -c 4 <&3"
    return host.run(["timeout", "5", "bash", "-c", script], check=False).stdout == "SSH-"


def test_sshd_and_ssh(node: Host) -> None:
    dropin = {"/etc/ssh/sshd_config.d/60-ring.conf": "Port 22\nPort 2222\n"}
    assert not banner(node, 2222)
    apply(node, "drop-in", dropin)
    node.wait_for(lambda: banner(node, 2222), "sshd listens where the drop-in says")
    whole = "Include /etc/ssh/sshd_config.d/*.conf\nPort 2223\nUsePAM yes\n"
    apply(node, "whole", {**dropin, "/etc/ssh/sshd_config": whole})
    node.wait_for(lambda: banner(node, 2223), "sshd listens where its configuration says")
    assert banner(node, 2222)
    apply(
        node, "client", {**dropin, "/etc/ssh/sshd_config": whole, "/etc/ssh/ssh_config.d/60-ring.conf": "Port 2299\n"}
    )
    assert "port 2299" in output(node, "ssh", "-G", "ring.example.com").splitlines()
    apply(node, "client-whole", {**dropin, "/etc/ssh/sshd_config": whole, "/etc/ssh/ssh_config": "Port 2300\n"})
    assert "port 2300" in output(node, "ssh", "-G", "ring.example.com").splitlines()


def test_chronyd(node: Host) -> None:
    def uses(address: str) -> bool:
        return address in output(node, "chronyc", "-n", "sources")

    files = {"/etc/chrony/conf.d/ring.conf": "server 192.0.2.7 iburst\n"}
    assert not uses("192.0.2.7")
    apply(node, "drop-in", files)
    node.wait_for(lambda: uses("192.0.2.7"), "the source of the drop-in")
    files |= {"/etc/chrony/chrony.conf": "server 192.0.2.8 iburst\nconfdir /etc/chrony/conf.d\n"}
    apply(node, "whole", files)
    node.wait_for(lambda: uses("192.0.2.8"), "the source of the configuration")
    # The path of Fedora and RHEL.
    node.write(CHRONY, UNPRIVILEGED.format("/etc/chrony.conf"))
    node.run(["systemctl", "daemon-reload"])
    apply(node, "other-path", {**files, "/etc/chrony.conf": "server 192.0.2.9 iburst\n"})
    node.wait_for(lambda: uses("192.0.2.9"), "the source of the other path")


def test_journald(node: Host) -> None:
    files = {"/etc/systemd/journald.conf.d/60-ring.conf": "[Journal]\nSystemMaxUse=48M\n"}
    apply(node, "drop-in", files)
    unit = ["journalctl", "-b", "-u", "systemd-journald.service", "-o", "cat"]
    node.wait_for(lambda: ", max 48M," in output(node, *unit), "journald logs its new limit")

    def entries(tag: str) -> int:
        node.run(["systemd-cat", "-t", tag, "printf", "%0250d\\n", "0"])
        node.run(["journalctl", "--sync"])
        return len(output(node, "journalctl", "-b", "-t", tag, "-o", "cat").splitlines())

    assert entries("before") == 1
    apply(node, "whole", {**files, "/etc/systemd/journald.conf": "[Journal]\nLineMax=100\n"})
    assert entries("after") > 1


def test_sudo_and_logins(node: Host) -> None:
    rule = "core ALL=(root) NOPASSWD: /usr/bin/{}\n"
    whole = "Defaults env_reset\nroot ALL=(ALL:ALL) ALL\n" + rule.format("uptime") + "@includedir /etc/sudoers.d\n"
    apply(node, "sudo", {"/etc/sudoers.d/ring": rule.format("id"), "/etc/sudoers": whole})
    allowed = output(node, "sudo", "-l", "-U", "core")
    assert "/usr/bin/id" in allowed
    assert "/usr/bin/uptime" in allowed
    login = {
        "/etc/security/limits.d/ring.conf": "core - nofile 777\n",
        "/etc/profile.d/ring.sh": "RING=of-the-profile\n",
        "/etc/motd": "message of the ring\n",
        "/etc/motd.d/60-ring": "a part of the message\n",
    }
    apply(node, "logins", login)
    assert output(node, "su", "-", "core", "-c", "ulimit -n; echo $RING").split() == ["777", "of-the-profile"]
    node.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/key"])
    node.run(["install", "-D", "-o", "core", "-m", "0600", "/root/key.pub", "/home/core/.ssh/authorized_keys"])
    node.run(["chown", "core", "/home/core/.ssh"])
    session = "echo exit | timeout 20 ssh -tt -i /root/key -o StrictHostKeyChecking=no core@127.0.0.1"
    greeting = node.run(["sh", "-c", session], check=False).stdout
    assert "message of the ring" in greeting
    assert "a part of the message" in greeting


def test_sysctl(node: Host) -> None:
    """The container has the settings of its own network."""
    fin, cookies = "/proc/sys/net/ipv4/tcp_fin_timeout", "/proc/sys/net/ipv4/tcp_syncookies"
    ports = "net.ipv4.ip_local_port_range"

    def planned(text: str) -> list[str]:
        config = machine_config("plan", files={"/etc/sysctl.d/60-ring.conf": text})
        plan = json.loads(node.run(["nodeagent", "plan", "--json", "-"], stdin=config).stdout)
        return [action["type"] for action in plan["actions"]]

    # A pattern and a name beside it, as systemd itself brings them on Fedora.
    vendor = f"net.ipv4.tcp_fin_timeout = 50\nnet.ipv4.tcp_syncookies = 1\n{ports} = 32768 60999\n"
    node.write(f"{VENDOR}/50-ring.conf", f"{vendor}net.ipv4.conf.*.rp_filter = 2\n-net.ipv4.conf.all.rp_filter\n")
    node.run(["systemctl", "restart", "systemd-sysctl.service"])
    assert output(node, "cat", fin) == "50\n"
    apply(node, "changed", {"/etc/sysctl.d/60-ring.conf": "net.ipv4.tcp_fin_timeout = 40\n"})
    assert output(node, "cat", fin) == "40\n"
    apply(node, "again", {"/etc/sysctl.d/60-ring.conf": "# shorter\nnet/ipv4/tcp_fin_timeout = 30\n"})
    assert output(node, "cat", fin) == "30\n"
    assert planned("net.ipv4.tcp_fin_timeout = 20\n") == ["Restart"]
    assert planned("net.ipv4.tcp_fin_timeout = 30\nnet.ipv4.tcp_orphan_retries = 3\n") == ["Drain", "Reboot"]
    # Another program has set what a restart would take back.
    for path, text in ((cookies, "0"), ("/proc/sys/net/ipv4/conf/lo/rp_filter", "1")):
        was = output(node, "cat", path)
        node.run(["sh", "-c", f"echo {text} > {path}"])
        assert planned("net.ipv4.tcp_fin_timeout = 20\n") == ["Drain", "Reboot"]
        node.run(["sh", "-c", f"echo {was.strip()} > {path}"])
        assert planned("net.ipv4.tcp_fin_timeout = 20\n") == ["Restart"]

    # The kernel refuses such a range, at a boot as well. The restart with the previous file brings its values.
    before = node.reboots
    refused = f"net.ipv4.tcp_fin_timeout = 20\n{ports} = 60999 32768\n"
    agent.write_desired(node, machine_config("refused", files={"/etc/sysctl.d/60-ring.conf": refused}))
    assert agent.wait_outcome(node, "refused")["outcome"] == "reverted"
    assert output(node, "cat", fin) == "30\n"
    assert output(node, "cat", "/proc/sys/net/ipv4/ip_local_port_range").split() == ["32768", "60999"]
    assert node.reboots == before


# Two ends of a cable, of which NetworkManager has one, and a bridge.
CONNECTIONS = "/etc/NetworkManager/system-connections"
CABLE = """[connection]
id=ring
type=veth
interface-name=ring0
[veth]
peer=ring1
[ipv4]
method=manual
address1=192.0.2.20/24
dns=192.0.2.53
route1=198.51.100.0/24,192.0.2.1
[ipv6]
method=disabled
"""
BRIDGE = """[connection]
id=bridge
type=bridge
interface-name=ring9
[ipv4]
method=manual
address1=203.0.113.9/24
"""


def test_network_manager(node: Host) -> None:
    bus = ["org.freedesktop.NetworkManager", "/org/freedesktop/NetworkManager", "org.freedesktop.NetworkManager"]

    def checks(name: str) -> str:
        return output(node, "busctl", "get-property", *bus, f"ConnectivityCheck{name}").strip()

    def planned(path: str, text: str) -> list[str]:
        config = machine_config("plan", files={**files, path: text})
        plan = json.loads(node.run(["nodeagent", "plan", "--json", "-"], stdin=config).stdout)
        return [action["type"] for action in plan["actions"]]

    def active() -> bool:
        shown = [output(node, "nmcli", "-g", "GENERAL.STATE", "device", "show", name) for name in ("ring0", "ring9")]
        return all(state.startswith("100") for state in shown)

    def state() -> list[str]:
        """What the kernel and the host have of the connections."""
        addresses = [output(node, "ip", "-o", "address", "show", name) for name in ("ring0", "ring9")]
        return [*addresses, output(node, "ip", "route"), output(node, "cat", "/run/NetworkManager/resolv.conf")]

    for name, text in (("cable", CABLE), ("bridge", BRIDGE)):
        node.write(f"{CONNECTIONS}/{name}.nmconnection", text)
        node.run(["chmod", "600", f"{CONNECTIONS}/{name}.nmconnection"])
    node.write("/usr/lib/NetworkManager/conf.d/20-vendor.conf", "[connectivity]\nuri=http://192.0.2.7/vendor\n")
    node.run(["systemctl", "start", "NetworkManager.service"])
    node.wait_for(active, "the connections are active")
    before = state()
    for number, part in enumerate(("192.0.2.20/24", "203.0.113.9/24", "198.51.100.0/24 via 192.0.2.1", "192.0.2.53")):
        assert part in before[number]
    node.run(["systemd-run", "-q", "--unit=monitor", "ip", "-o", "monitor", "link", "address", "route"])
    assert checks("Uri") == 's "http://192.0.2.7/vendor"'
    core = ["runuser", "-u", "core", "--", "nmcli", "-g", "VALUE", "general", "permissions"]
    assert set(output(node, *core).split()) != {"yes"}

    files = {"/etc/NetworkManager/conf.d/90-ring.conf": "[logging]\nlevel=DEBUG\ndomains=CORE,DEVICE\n"}
    apply(node, "logging", files)
    assert output(node, "nmcli", "-g", "LEVEL,DOMAINS", "general", "logging").strip() == "DEBUG:CORE,DEVICE"
    main = output(node, "cat", "/etc/NetworkManager/NetworkManager.conf")
    files |= {"/etc/NetworkManager/NetworkManager.conf": f"{main}[main]\nauth-polkit=false\n"}
    apply(node, "polkit", files)
    assert set(output(node, *core).split()) == {"yes"}
    # It takes the place of the file of the OS.
    files |= {"/etc/NetworkManager/conf.d/20-vendor.conf": "[connectivity]\nuri=http://192.0.2.8/ring\n"}
    apply(node, "connectivity", files)
    assert checks("Uri") == 's "http://192.0.2.8/ring"'
    assert checks("Enabled") == "b true"
    off = "[connectivity]\nuri=http://192.0.2.8/ring\nenabled=false\n"
    apply(node, "off", {**files, "/etc/NetworkManager/conf.d/20-vendor.conf": off})
    assert checks("Enabled") == "b false"

    # The connections have been active all the time, on the same interfaces, with all that they had.
    node.wait_for(active, "the connections are active again")
    assert state() == before
    assert output(node, "systemctl", "show", "-P", "ActiveState", "monitor.service") == "active\n"
    seen = output(node, "journalctl", "-b", "-u", "monitor.service", "-o", "cat").splitlines()
    assert not [line for line in seen if "Deleted" in line and "ring" in line]
    assert not [line for line in seen if ": ring0@" in line and "state DOWN" in line]

    drop_in = "/etc/NetworkManager/conf.d/90-ring.conf"
    more = files[drop_in].replace("DEBUG", "TRACE")
    assert planned(drop_in, more) == ["Restart"]
    assert planned(drop_in, f"{more}[keyfile]\nunmanaged-devices=interface-name:ring0\n") == ["Drain", "Reboot"]
    node.write(f"{CONNECTIONS}/ovs.nmconnection", "[connection]\nid=br-ex\ntype=ovs-bridge\n")
    assert planned(drop_in, more) == ["Drain", "Reboot"]
    broken = machine_config("broken", files={**files, drop_in: "[logging]\nlevel\n"})
    refused = node.run(["nodeagent", "plan", "-"], stdin=broken, check=False)
    assert refused.returncode != 0
    assert f"{drop_in}: NetworkManager cannot read it" in refused.stderr
