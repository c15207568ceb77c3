# SPDX-License-Identifier: Apache-2.0
"""Which entries need the start of a kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plan.change import Change, ChangeKind
from nodeagent.core.plan.kernel_start import TREE_PATHS, kernel_start

pytestmark = pytest.mark.finding(
    "OS: soft reboots",
    "A fallback is soft only where services are all that matters, and where it starts the same system; an"
    " old logind never reboots fully instead.",
)

KERNEL = [
    "file:/etc/modprobe.d/blacklist.conf",
    "file:/etc/modules-load.d/br_netfilter.conf",
    "file:/etc/modules",
    "file:/etc/depmod.d/x.conf",
    "file:/etc/sysctl.conf",
    "file:/etc/sysctl.d/99-kernel.conf",
    "file:/usr/local/lib/sysctl.d/x.conf",
    "file:/etc/udev/rules.d/70-disk.rules",
    "file:/etc/udev/hwdb.d/x.hwdb",
    "file:/etc/systemd/network/10-eth.link",
    "file:/etc/systemd/network/10-eth.link.d/x.conf",
    "file:/etc/crypttab",
    "file:/etc/cryptsetup-keys.d/root.key",
    "file:/etc/fstab",
    "file:/etc/lvm/lvm.conf",
    "file:/etc/multipath/conf.d/x.conf",
    "file:/etc/iscsi/initiatorname.iscsi",
    "file:/etc/dracut.conf.d/x.conf",
    "file:/etc/kernel/cmdline",
    "file:/etc/default/grub",
    "file:/boot/loader/x",
    "file:/etc/ostree/prepare-root.conf",
    "file:/etc/kdump.conf",
    "file:/etc/selinux/config",
    "file:/etc/system-fips",
    "file:/etc/tmpfiles.d/x.conf",
    "file:/etc/binfmt.d/x.conf",
    "file:/etc/tuned/active_profile",
    "file:/etc/audit/rules.d/x.rules",
    "file:/etc/nftables/main.nft",
    "file:/etc/systemd/system/systemd-udevd.service.d/x.conf",
    "unit:systemd-sysctl.service",
    "unit:systemd-modules-load.service",
    "unit:systemd-cryptsetup@luks-root.service",
    "unit:boot.mount",
    "unit:dracut-shutdown.service",
    "unit:ostree-finalize-staged.service",
    "osImageURL:osImageURL",
    "kernelArguments:kernelArguments",
    "kernelType:kernelType",
    "extensions:extensions",
    "fips:fips",
]
USERSPACE = [
    "file:/etc/containers/registries.conf",
    "file:/etc/crio/crio.conf.d/x.conf",
    "file:/etc/kubernetes/kubelet.conf",
    "file:/etc/modprobe.directory",
    "file:/etc/fstab.example",
    "file:/etc/systemd/network/10-eth.network",
    "file:/etc/systemd/system/app.service.d/x.conf",
    "file:/var/lib/etc/sysctl.d/x.conf",
    "file:/etc",
    "unit:crio.service",
    "unit:kubelet.service",
    "unit:var-lib-data.mount",
    "sshkey:core",
    "password:core",
]


def change(entry: str, kind: ChangeKind = ChangeKind.MODIFIED) -> Change:
    domain, _, key = entry.partition(":")
    return Change(domain, key, kind)


@pytest.mark.parametrize("entry", KERNEL)
def test_a_kernel_must_start_for(entry: str) -> None:
    assert all(kernel_start(change(entry, kind)) for kind in ChangeKind)


@pytest.mark.parametrize("entry", USERSPACE)
def test_services_are_enough_for(entry: str) -> None:
    assert kernel_start(change(entry)) == ""


@given(st.text(max_size=40))
def test_each_path_and_name_has_an_answer(text: str) -> None:
    assert isinstance(kernel_start(change(f"file:/{text}")), str)
    assert isinstance(kernel_start(change(f"unit:{text}")), str)


def test_the_paths_of_a_tree_are_those_of_a_host() -> None:
    assert {"usr/lib/modules", "usr/etc/selinux", "usr/lib/sysctl.d", "usr/etc/sysctl.d", "usr/lib/udev"} <= set(
        TREE_PATHS
    )
    assert not any(path.startswith("/") or "usr/run" in path for path in TREE_PATHS)
