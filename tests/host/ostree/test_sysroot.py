# SPDX-License-Identifier: Apache-2.0
"""The deployments from the files of libostree alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.errors import Refused, Retryable, Unreconcilable
from nodeagent.host.ostree.sysroot import directory_of, image_metadata, layers_of, read_origin, read_sysroot
from tests.host.ostree.fake_sysroot import ARGUMENTS, OSNAME, A, B, C, FakeDeployment, FakeSysroot, reference


@pytest.fixture
def host(tmp_path: Path) -> FakeSysroot:
    host = FakeSysroot(tmp_path)
    host.write()
    host.commit(A, f"sha256:{'0' * 64}", "41.1.0")
    return host


def test_the_deployments_in_boot_order(host: FakeSysroot) -> None:
    found = read_sysroot(host.root)
    booted, other = found.deployments
    assert (booted.id, booted.checksum, booted.base, booted.osname) == (f"{OSNAME}-{A}.0", A, A, OSNAME)
    assert (booted.version, booted.digest, booted.image) == ("41.1.0", f"sha256:{'0' * 64}", reference("0"))
    assert " ".join(booted.kernel_arguments[:-1]) == ARGUMENTS
    assert (booted.booted, booted.staged, booted.locked, booted.pinned) == (True, False, None, False)
    assert (other.checksum, other.digest, other.version, other.booted) == (C, "", "", False)
    assert (found.first, found.booted, found.previous, found.staged) == (booted, booted, other, None)
    assert found.entries[other.id].order == 1


def test_another_one_boots_first(host: FakeSysroot) -> None:
    host.deployments.reverse()
    host.write()
    found = read_sysroot(host.root)
    assert (found.first.checksum, found.booted.checksum, found.previous) == (C, A, None)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_staged_one_comes_first(host: FakeSysroot, legacy: bool) -> None:
    host.staged, host.locked, host.legacy_lock = FakeDeployment(B, 1, reference("1"), "root=x nosmt"), True, legacy
    host.write()
    found = read_sysroot(host.root)
    assert found.staged == found.first
    assert (found.first.id, found.first.locked, found.first.kernel_arguments) == (
        f"{OSNAME}-{B}.1", True, ("root=x", "nosmt"),
    )  # fmt: skip
    with pytest.raises(Refused) as caught:
        found.refuse_staged()
    assert caught.value.reason == "StagedByOther"
    host.locked = False
    host.write()
    assert read_sysroot(host.root).first.locked is False


def test_what_an_origin_file_says(host: FakeSysroot) -> None:
    host.deployments[0].more_origin = "[libostree-transient]\npinned=true\n[packages]\nrequested=vim;\n"
    host.write()
    booted = read_sysroot(host.root).booted
    assert booted.pinned
    assert read_origin(host.root, booted.id)["packages"] == {"requested": "vim;"}
    assert layers_of(read_origin(host.root, booted.id)) == ("[packages] requested=vim",)
    (directory_of(host.root, booted.id).with_name(f"{A}.0.origin")).write_text("no key file")
    assert read_origin(host.root, booted.id) == {}
    assert read_sysroot(host.root).booted.image == ""


@pytest.mark.parametrize("content", [b"", b"\0", b"x" * 300, b"\xff" * 70_000])
def test_a_commit_that_does_not_fit(host: FakeSysroot, content: bytes) -> None:
    path = host.root / f"ostree/repo/objects/aa/{A[2:]}.commit"
    path.write_bytes(content)
    assert image_metadata(host.root, A) == ("", "")
    assert read_sysroot(host.root).booted.version == ""


def test_a_host_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(Unreconcilable) as caught:
        read_sysroot(tmp_path)
    assert caught.value.reason == "NoDeployments"


def test_a_boot_menu_that_is_being_replaced(host: FakeSysroot) -> None:
    (host.root / "boot/loader").unlink()
    with pytest.raises(Retryable) as caught:
        read_sysroot(host.root)
    assert caught.value.reason == "NoBootEntry"
