# SPDX-License-Identifier: Apache-2.0
"""The harness keeps its promises; without this, a green ring could mean that nothing ran."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from integration.hosts.container import container_host, events
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import Image
from integration.hosts.container.package import install, installed_image
from integration.hosts.errors import CommandFailed, HostGone, HostTimeout
from integration.hosts.snapshot import difference

# `make test` has six minutes, and the stories of nodeagent come first there.
pytestmark = pytest.mark.long

AS_CORE = ["busctl", "--system", "--expect-reply=yes", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"]


def unit_events(host: Host, unit: str) -> list[str]:
    return [event.event for event in host.events(unit)]


def test_a_booted_host_is_a_whole_one(host: Host) -> None:
    assert host.run(["systemctl", "is-system-running"]).stdout.strip() == "running"
    assert host.run(["systemctl", "--version"]).stdout.startswith("systemd 257")
    # D-Bus, and polkit behind it: what root may, the user core may not, and it is polkit that says so.
    assert "org.freedesktop.systemd1" in host.run(["busctl", "list", "--no-legend"]).stdout
    reload = [*AS_CORE, "org.freedesktop.systemd1.Manager", "ReloadUnit", "ss", "crio.service", "replace"]
    assert "/job/" in host.run(reload).stdout
    refused = host.run(reload, user="core", check=False)
    assert refused.returncode != 0
    assert host.is_active("polkit.service")
    # logind
    assert "cannot list" not in host.run(["loginctl", "list-sessions"]).stdout
    assert host.run(["systemd-inhibit", "--what=shutdown", "--who=test", "--list"]).returncode == 0
    # A machine of its own, without Python.
    assert host.boot_id != Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert host.run(["sh", "-c", "command -v python3 python"], check=False).stdout == ""
    assert host.run(["id", "-u", "core"]).stdout.strip() == "1000"
    assert host.run(["readlink", "-f", "/home/core"]).stdout.strip() == "/var/home/core"


def test_a_login_is_a_session(host: Host) -> None:
    host.log_in("core")
    assert "core" in host.run(["loginctl", "list-sessions", "--no-legend"]).stdout


def test_the_journal_is_read_with_fields(host: Host) -> None:
    host.run(["logger", "--journald"], stdin="MESSAGE=spoken\nNODEAGENT_PHASE=Acting\nLONG=" + "x" * 5000 + "\n")
    host.wait_for(lambda: host.journal(match={"NODEAGENT_PHASE": "Acting"}), "the entry is there")
    (entry,) = host.journal(match={"NODEAGENT_PHASE": "Acting"}, boot=host.boot_id)
    assert entry["MESSAGE"] == "spoken"
    assert len(entry["LONG"]) == 5000
    assert "Started crio.service" in "".join(entry["MESSAGE"] for entry in host.journal("crio.service"))


def test_files_commands_and_their_errors(host: Host) -> None:
    host.write("/etc/some/where", b"\0bytes\xff", mode=0o640)
    assert host.read("/etc/some/where") == b"\0bytes\xff"
    assert host.run(["stat", "--format=%a", "/etc/some/where"]).stdout.strip() == "640"
    assert host.exists("/etc/some/where")
    assert not host.exists("/etc/some/other")
    with pytest.raises(CommandFailed, match=r"cat -- /etc/none: exit status 1: .*No such file"):
        host.read("/etc/none")
    with pytest.raises(CommandFailed, match=r"sleep 77: still running after 0.2 s"):
        host.run(["sleep", "77"], timeout=0.2)
    assert "sleep 77" not in host.run(["ps", "ax", "-o", "args"]).stdout, "it was left behind in the host"
    with pytest.raises(HostTimeout, match=r"(?s)pigs fly: not so after 0.1 s.*end of its journal:\n.*systemd"):
        host.wait_for(lambda: False, "pigs fly", timeout=0.1)


def test_a_snapshot_sees_every_kind_of_difference(host: Host) -> None:
    before = host.snapshot("/etc", "/var/home")
    assert difference(before, host.snapshot("/etc", "/var/home")) == []
    host.run(["touch", "/etc/hostname"])
    assert difference(before, host.snapshot("/etc", "/var/home")) == [], "times do not count"
    host.run(["chmod", "600", "/etc/hostname"])
    host.run(["chown", "core", "/etc/fstab"], check=False)
    host.run(["ln", "-s", "hostname", "/etc/link"])
    host.write("/var/home/core/file", "x", owner="core")
    host.run(["rm", "/etc/flaky/mode"])
    paths = [line.split(":")[0] for line in difference(before, host.snapshot("/etc", "/var/home"))]
    assert paths == ["/etc/flaky/mode", "/etc/fstab", "/etc/hostname", "/etc/link", "/var/home/core/file"]


def test_a_reboot_is_followed(host: Host) -> None:
    first = host.boot_id
    host.write("/etc/kept", "kept")
    host.write("/run/lost", "lost")
    with host.rebooting():
        host.run(["systemctl", "reboot"])
    assert host.reboots == 1
    assert [boot.boot_id == first for boot in host.boots] == [True, False]
    assert host.read_text("/proc/sys/kernel/random/boot_id").strip() == host.boot_id
    assert host.read_text("/etc/kept") == "kept"
    assert not host.exists("/run/lost")
    assert unit_events(host, "crio.service") == ["start", "stop", "start"]
    assert len(host.journal("crio.service", boot=first)) > 0, "the journal outlives the boot"
    assert len(host.run(["journalctl", "--list-boots", "--no-pager", "--quiet"]).stdout.splitlines()) == 2


def test_a_power_cut_is_no_shutdown(host: Host) -> None:
    first = host.boot_id
    second = host.power_cut()
    assert second.boot_id != first
    assert not second.after_reboot
    assert host.reboots == 0
    assert unit_events(host, "crio.service") == ["start", "start"], "nothing may run when the power is gone"


def test_a_host_that_is_off_keeps_its_files(host: Host) -> None:
    host.run(["systemctl", "poweroff"])
    host.container.wait_off(10)
    assert host.read_text("/etc/hostname") == "node\n"
    assert "Reached target" in host.journal_tail(200)
    with pytest.raises(HostGone, match=r"is off \(nspawn ended with status 0"):
        host.container.wait_ready(2, timeout=1)
    host.boot()
    assert host.is_active("crio.service")


def test_a_full_disk_is_really_full(make_host: HostMaker) -> None:
    host = make_host(disk="24m")
    host.boot()
    host.fill_disk("/var/full")
    with pytest.raises(CommandFailed, match="No space left on device"):
        host.write("/etc/new", "x" * 10_000)
    host.run(["rm", "/var/full"])
    host.run(["rm", "--force", "/etc/new.new"])
    host.write("/etc/new", "x" * 10_000)


def test_bad_places(host: Host) -> None:
    host.mount_tmpfs("/etc/small", "64k")
    host.fill_disk("/etc/small/full")
    with pytest.raises(CommandFailed, match="No space left on device"):
        host.write("/etc/small/new", "x")
    host.make_read_only("/etc/containers")
    with pytest.raises(CommandFailed, match="Read-only file system"):
        host.write("/etc/containers/policy.json", "x")
    host.set_immutable("/etc/flaky/mode")
    with pytest.raises(CommandFailed, match="Operation not permitted"):
        host.write("/etc/flaky/mode", "fail")
    host.set_immutable("/etc/flaky/mode", on=False)
    host.write("/etc/flaky/mode", "ok")
    host.set_immutable("/etc/hostname")  # left so: closing must cope


def test_the_stand_ins_note_what_is_done_to_them(host: Host) -> None:
    host.write("/etc/containers/registries.conf", "new")
    host.run(["systemctl", "reload", "crio.service"])
    policy = host.read("/etc/containers/policy.json")
    assert host.events("crio.service")[-1].digest == events.digest(b"new", policy)
    host.run(["systemctl", "restart", "crio.service", "kubelet.service"])
    assert unit_events(host, "crio.service") == ["start", "reload", "stop", "start"]
    assert unit_events(host, "kubelet.service") == ["start", "stop", "start"]
    assert host.events("crio.service")[0].boot_id == host.boot_id

    bundle = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt"
    assert unit_events(host, "coreos-update-ca-trust.service") == []
    host.write(bundle, "certificate")
    host.run(["systemctl", "restart", "coreos-update-ca-trust.service"])
    assert [event.digest for event in host.events("coreos-update-ca-trust.service")] == [events.digest(b"certificate")]
    assert host.is_active("coreos-update-ca-trust.service")

    restarts = host.unit("kubelet.service", "NRestarts")["NRestarts"]
    host.kill("kubelet.service")
    host.wait_for(lambda: host.unit("kubelet.service", "NRestarts")["NRestarts"] > restarts, "systemd restarts it")


def test_flaky_fails_as_configured(host: Host) -> None:
    restart = ["systemctl", "restart", "flaky.service"]
    host.write("/etc/flaky/mode", "fail")
    assert host.run(restart, check=False).returncode == 1
    host.write("/etc/flaky/mode", "hang")
    host.run([*restart, "--no-block"])
    host.wait_for(lambda: host.unit("flaky.service", "ActiveState")["ActiveState"] == "activating", "it hangs")
    host.write("/etc/flaky/mode", "die 0.5")
    host.run(restart)
    assert host.is_active("flaky.service")
    host.wait_for(lambda: not host.is_active("flaky.service"), "it dies", timeout=3)
    host.write("/etc/flaky/mode", "ok")
    host.run(restart)
    host.write("/etc/flaky/mode", "fail until-reboot")
    assert host.run(restart, check=False).returncode == 1
    assert host.run(restart, check=False).returncode == 1
    with host.rebooting():
        host.run(["systemctl", "reboot"])
    assert host.is_active("flaky.service")
    assert host.run(restart).returncode == 0


def test_hosts_do_not_see_each_other(make_host: HostMaker) -> None:
    one, two = make_host(), make_host()
    one.boot()
    two.boot()
    one.write("/etc/mine", "one")
    assert not two.exists("/etc/mine")
    assert one.read_text("/etc/machine-id") != two.read_text("/etc/machine-id")
    with one.rebooting():
        one.run(["systemctl", "reboot"])
    assert len(two.boots) == 1
    assert unit_events(two, "crio.service") == ["start"]
    assert two.is_active("crio.service")


def test_nothing_is_left_of_a_closed_host(image: Image) -> None:
    host = Host(image)
    host.boot()
    leader, group = host.container.leader, host.container.cgroup
    host.close()
    host.close()
    assert not Path(f"/proc/{leader}").exists()
    assert not host.directory.exists()
    assert not group.exists()
    assert host.name not in Path("/proc/self/mountinfo").read_text()


def test_nothing_is_left_of_a_killed_test_run(image: Image) -> None:
    code = """
from integration.hosts.container.image import base_image
from integration.hosts.container.container_host import Host
host = Host(base_image(print))
host.boot()
print(host.container.leader, host.directory, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as run:
        assert run.stdout is not None
        leader, directory = run.stdout.readline().split()
        run.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{leader}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{leader}").exists(), "the host outlived the test run"
    container_host.sweep()
    assert not Path(directory).exists()


def test_nothing_is_left_of_a_killed_chroot() -> None:
    code = """
from integration.hosts.container.image import base_image
from integration.trees.base import chrooted
from integration.trees.toolbox import scratch
with scratch(base_image(print)) as root, chrooted(root):
    print(root, flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as run:
        assert run.stdout is not None
        root = Path(run.stdout.readline().strip())
        run.kill()
    assert (root / "proc/self").exists()
    container_host.sweep()
    assert not root.parent.exists()
    assert str(root.parent) not in Path("/proc/self/mountinfo").read_text()


def test_a_package_is_installed_and_upgraded(
    make_host: HostMaker, image: Image, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    old = make_package(tmp_path / "old.tar", {"usr/lib/nodeagent/old": "", "usr/lib/nodeagent/version": "1\n"})
    new = make_package(tmp_path / "new.tar", {"usr/lib/nodeagent/version": "2\n"})
    derived = installed_image(image, old)
    request.addfinalizer(derived.layers[-1].lock.close)
    host = make_host(derived)
    host.boot()
    assert host.is_active("nodeagent.service")
    assert host.run(["id", "-u", "nodeagent-test"]).returncode == 0
    install(host, new)
    assert host.read_text("/usr/lib/nodeagent/version") == "2\n"
    assert not host.exists("/usr/lib/nodeagent/old")
    assert host.journal("nodeagent.service")[-1]["MESSAGE"].startswith("Started")

    fresh = make_host()
    fresh.boot()
    install(fresh, new)
    assert fresh.is_active("nodeagent.service")
    assert fresh.unit("nodeagent.service", "UnitFileState")["UnitFileState"] == "enabled"


def make_package(path: Path, files: dict[str, str]) -> Path:
    unit = (
        "[Service]\nType=exec\nUser=nodeagent-test\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
    )
    contents = {
        **files,
        "usr/lib/systemd/system/nodeagent.service": unit,
        "usr/lib/systemd/system-preset/50-nodeagent.preset": "enable nodeagent.service\n",
        "usr/lib/sysusers.d/nodeagent.conf": "u nodeagent-test -\n",
    }
    with tarfile.open(path, "w") as tar:
        for name, text in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def test_a_guest_cannot_set_the_clock_of_the_machine(host: Host) -> None:
    """Asks for the time that it is, so that nothing happens if this fails."""
    refused = host.run(["sh", "-c", 'date --set="@$(date +%s)"'], check=False)
    assert refused.returncode != 0
    assert "Operation not permitted" in refused.stderr
