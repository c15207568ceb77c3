# SPDX-License-Identifier: Apache-2.0
"""The harness keeps its promises; without this, a green ring could mean that nothing ran."""

from __future__ import annotations

from pathlib import Path

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree.conftest import REGISTRY, OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import BOOT_COMPLETE, FINALIZE, STAGED, OstreeHost
from integration.trees.ostree_repo import Commit, OstreeRepo
from integration.trees.tree import BAD, BAD_UNIT, CONTENT, DEFAULTS, NEW_UNIT, A, B


def reboot(host: OstreeHost) -> None:
    with host.rebooting():
        host.run(["systemctl", "reboot"])


def test_a_booted_host_is_a_whole_one(ostree_host: OstreeHost, commit_a: Commit) -> None:
    host = ostree_host
    assert host.run(["systemctl", "is-system-running"]).stdout.strip() == "running"
    assert host.run(["systemctl", "--version"]).stdout.startswith("systemd 257")
    assert "org.freedesktop.login1" in host.run(["busctl", "list", "--no-legend"]).stdout
    (deployment,) = host.deployments()
    assert (deployment.checksum, deployment.booted, deployment.staged) == (commit_a.checksum, True, False)
    assert f"OSTREE_VERSION='{A.version}'" in host.read_text("/etc/os-release")
    assert host.read_text(CONTENT) == A.files[CONTENT]
    assert host.read_text(DEFAULTS) == A.files[DEFAULTS]
    assert host.run(["readlink", "-f", "/home/core"]).stdout.strip() == "/var/home/core"
    assert host.run(["stat", "--format=%U", "/var/home/core"]).stdout.strip() == "core"


def test_etc_and_var_are_writable_and_usr_is_not(ostree_host: OstreeHost) -> None:
    """Nor is /, which libostree makes immutable: a tmpfs can be that since Linux 6.6."""

    def writable(directory: str) -> bool:
        return ostree_host.run(["touch", f"{directory}/new"], check=False).returncode == 0

    assert [path for path in ("/usr", "/sysroot", "/etc", "/var") if writable(path)] == ["/etc", "/var"]


def test_the_kernel_arguments_are_those_of_the_entry(make_ostree_host: OstreeHostMaker) -> None:
    host = make_ostree_host(kargs=["root=LABEL=root", "nosmt"])
    host.boot()
    assert host.cmdline == host.next_boot.options.split()
    assert host.cmdline[:2] == ["root=LABEL=root", "nosmt"]
    # What systemd takes for the kernel's arguments.
    condition = ["systemd-analyze", "condition", "ConditionKernelCommandLine=nosmt"]
    assert host.run(condition).returncode == 0


def test_a_staged_deployment_boots(ostree_host: OstreeHost, commit_a: Commit, commit_b: Commit) -> None:
    host = ostree_host
    host.write("/etc/mine", "mine")
    host.write("/var/mine", "mine")
    host.stage(commit_b)
    assert [(d.checksum, d.staged, d.booted) for d in host.deployments()] == [
        (commit_b.checksum, True, False),
        (commit_a.checksum, False, True),
    ]
    before = host.next_boot
    host.write("/etc/late", "written between staging and reboot")
    assert host.next_boot == before, "nothing changes before the shutdown"
    reboot(host)
    assert host.booted == commit_b.checksum
    assert host.next_boot.options != before.options
    assert [d.checksum for d in host.deployments()] == [commit_b.checksum, commit_a.checksum]
    # /etc: what was changed here stays, what was not is the new default, /var is one for both.
    assert host.read_text("/etc/mine") == "mine"
    assert host.read_text("/etc/late") == "written between staging and reboot"
    assert host.read_text(DEFAULTS) == "release = b\n"
    assert host.read_text("/var/mine") == "mine"
    assert host.is_active(NEW_UNIT)
    assert any("Finalized" in e["MESSAGE"] or "Transaction complete" in e["MESSAGE"] for e in host.journal(FINALIZE))


def test_a_changed_default_is_kept(ostree_host: OstreeHost, commit_b: Commit) -> None:
    ostree_host.write(DEFAULTS, "release = mine\n")
    ostree_host.stage(commit_b)
    reboot(ostree_host)
    assert ostree_host.read_text(DEFAULTS) == "release = mine\n"


def test_a_locked_deployment_does_not_boot(ostree_host: OstreeHost, commit_a: Commit, commit_b: Commit) -> None:
    ostree_host.stage(commit_b, "--lock-finalization")
    reboot(ostree_host)
    assert ostree_host.booted == commit_a.checksum
    assert not any(d.staged for d in ostree_host.deployments())


def test_an_unlocked_deployment_boots(ostree_host: OstreeHost, commit_b: Commit) -> None:
    ostree_host.stage(commit_b, "--lock-finalization")
    ostree_host.run(["ostree", "admin", "lock-finalization", "--unlock"])
    reboot(ostree_host)
    assert ostree_host.booted == commit_b.checksum


def test_a_power_cut_loses_what_is_staged(ostree_host: OstreeHost, commit_a: Commit, commit_b: Commit) -> None:
    ostree_host.write("/run/lost", "")
    ostree_host.stage(commit_b)
    assert ostree_host.exists(STAGED)
    ostree_host.power_cut()
    assert ostree_host.booted == commit_a.checksum
    assert not ostree_host.exists(STAGED)
    assert not ostree_host.exists("/run/lost")
    ostree_host.stage(commit_b)
    reboot(ostree_host)
    assert ostree_host.booted == commit_b.checksum


def test_kernel_arguments_change_with_a_deployment(ostree_host: OstreeHost, commit_b: Commit) -> None:
    ostree_host.stage(commit_b, "--karg-append=added=1", "--karg-delete=quiet")
    assert "added=1" not in ostree_host.cmdline
    reboot(ostree_host)
    assert "added=1" in ostree_host.cmdline
    assert "quiet" not in ostree_host.cmdline
    assert ostree_host.booted == commit_b.checksum


def test_a_failed_finalization_is_reported(
    make_ostree_host: OstreeHostMaker, commit_a: Commit, commit_b: Commit
) -> None:
    host = make_ostree_host(boot_size="1m")
    host.boot()
    host.stage(commit_b)
    fill_boot(host, leave="100K")  # the kernel of B is 64 KiB, its initramfs 256
    reboot(host)
    assert host.booted == commit_a.checksum
    assert host.unit(BOOT_COMPLETE, "Result", "ActiveState") == {"Result": "exit-code", "ActiveState": "failed"}
    assert f"{FINALIZE} failed on previous boot" in "".join(e["MESSAGE"] for e in host.journal(BOOT_COMPLETE))
    host.run(["rm", "/boot/full"])
    host.stage(commit_b)
    reboot(host)
    assert host.booted == commit_b.checksum
    assert host.unit(BOOT_COMPLETE, "ActiveState")["ActiveState"] != "failed"


def test_a_boot_without_a_free_byte_fails_without_a_report(
    make_ostree_host: OstreeHostMaker, commit_a: Commit, commit_b: Commit
) -> None:
    """libostree notes a failure in /boot: where that is what is full, only the journal has it."""
    host = make_ostree_host(boot_size="1m")
    host.boot()
    first = host.boot_id
    host.stage(commit_b)
    fill_boot(host, leave="0")
    reboot(host)
    assert host.booted == commit_a.checksum
    assert host.unit(BOOT_COMPLETE, "Result", "ActiveState") == {"Result": "success", "ActiveState": "inactive"}
    assert "No space left on device" in "".join(e["MESSAGE"] for e in host.journal(FINALIZE, boot=first))


def fill_boot(host: OstreeHost, leave: str) -> None:
    host.fill_disk("/boot/full")
    host.run(["truncate", f"--size=-{leave}", "/boot/full"])


def test_the_bad_tree_boots_with_a_failed_unit(make_ostree_host: OstreeHostMaker) -> None:
    host = make_ostree_host(BAD)
    host.boot()
    assert host.unit(BAD_UNIT, "ActiveState")["ActiveState"] == "failed"


def test_an_older_deployment_boots_again(ostree_host: OstreeHost, commit_a: Commit, commit_b: Commit) -> None:
    host = ostree_host
    host.stage(commit_b)
    reboot(host)
    host.write("/etc/only-b", "")
    host.run(["ostree", "admin", "set-default", "1"])
    reboot(host)
    assert host.booted == commit_a.checksum
    assert not host.exists("/etc/only-b"), "each deployment has its own /etc"


def test_a_host_that_is_off_shows_what_would_boot(ostree_host: OstreeHost, commit_b: Commit) -> None:
    host = ostree_host
    host.stage(commit_b)
    host.write("/var/mine", "mine")
    host.run(["systemctl", "poweroff"])
    host.container.wait_off(20)
    assert host.read_text(CONTENT) == "content of b\n"
    assert host.read_text("/var/mine") == "mine"
    host.write("/etc/offline", "")
    host.boot()
    assert host.exists("/etc/offline")
    assert host.booted == commit_b.checksum


def test_what_libostree_remounts_is_not_of_this_machine(ostree_host: OstreeHost) -> None:
    for path in ("/", "/boot", "/sysroot", "/var", "/etc"):
        argv = ["findmnt", "--noheadings", "--output=FSTYPE", "--target", path]
        assert ostree_host.run(argv).stdout.strip() == "tmpfs"


def test_nothing_is_left_of_a_closed_host(ostree_repo: OstreeRepo, commit_a: Commit) -> None:
    host = OstreeHost(ostree_repo, commit_a, boot_size="8m")
    host.boot()
    host.close()
    assert not host.directory.exists()
    assert host.name not in Path("/proc/self/mountinfo").read_text()


def test_a_node_has_the_agent_and_an_rpm_ostreed(ostree_node: OstreeHost, publish: Publish) -> None:
    assert agent.status(ostree_node)["phase"] == "Idle"
    service = "org.projectatomic.rpmostree1"
    get = ["busctl", "get-property", service, "/org/projectatomic/rpmostree1/Sysroot", f"{service}.Sysroot"]
    assert ostree_node.run([*get, "Booted"]).stdout == 'o "/org/projectatomic/rpmostree1/fedora_coreos"\n'
    assert (
        f'"container-image-reference-digest" s "{publish(A).digest}"' in ostree_node.run([*get, "Deployments"]).stdout
    )
    assert publish(B).digest in ostree_node.run(["sh", "-c", f"cat {REGISTRY}/images/*"]).stdout
