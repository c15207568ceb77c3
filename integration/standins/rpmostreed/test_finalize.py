# SPDX-License-Identifier: Apache-2.0
"""From staged to booted: the lock in its two places, FinalizeDeployment, and libostree's own work at shutdown."""

from __future__ import annotations

from typing import Any

from integration.standins.rpmostreed.sandbox.sandbox import OS, SYSROOT, Client, Sandbox
from integration.standins.rpmostreed.sandbox.template import BRANCH, CHUNKS, IMAGE

LOCKED = "{'lock-finalization': <true>}"
REFERENCE = f"ostree-unverified-registry:{IMAGE}"
LEGACY_LOCK = "/run/ostree/staged-deployment-locked"
NOBODY = {"ListInhibitors": "(@a(ssssuu) [],)"}
ENTRIES = "/boot/loader/entries"


def logind(sandbox: Sandbox, answers: dict[str, str]) -> Client:
    client = sandbox.client()
    sandbox.ask("own", wire=client.wire, name="org.freedesktop.login1", answers=answers)
    return client


def shut_down(sandbox: Sandbox) -> str:
    """Do the work of ostree-finalize-staged.service when it is stopped."""
    return sandbox.run("ostree", "admin", "finalize-staged")


def entries(sandbox: Sandbox) -> list[str]:
    return sandbox.run("sh", "-c", f"cat {ENTRIES}/*.conf").splitlines()


def test_the_lock_is_inside_the_staged_state_and_not_shown(sandbox: Sandbox) -> None:
    client = sandbox.client()
    client.transact("Upgrade", f"({LOCKED},)")
    staged = client.deployments()[0]
    assert staged["staged"] is True
    assert "finalization-locked" not in staged
    assert sandbox.read(LEGACY_LOCK) is None
    before = entries(sandbox)
    shut_down(sandbox)
    assert entries(sandbox) == before, "locked: not finalized, and no error either"


def test_nothing_of_boot_is_touched_before_shutdown(sandbox: Sandbox) -> None:
    client = sandbox.client()
    before = sandbox.run("sh", "-c", "find /boot | sort; cat /boot/loader/entries/*")
    client.transact("Upgrade", "(@a{sv} {},)")
    client.transact("KernelArgs", "('root=LABEL=root', ['quiet'], @as [], @as [], @a{sv} {})")
    assert sandbox.run("sh", "-c", "find /boot | sort; cat /boot/loader/entries/*") == before
    shut_down(sandbox)
    options = [line for line in entries(sandbox) if line.startswith("options ")]
    assert any("quiet" in line.split() for line in options)
    assert len(options) == 2, "the old one stays, to go back to"
    after = client.deployments()
    assert [(one["staged"], one["booted"], one["version"]) for one in after] == [
        (False, False, "3"),
        (False, True, "1"),
    ]
    assert client.property(OS, "OS", "DefaultDeployment")["version"] == "3"
    assert client.property(OS, "OS", "RollbackDeployment") == {}, "it is pending: nothing is behind the booted one"


def test_a_finalization_that_fails_is_not_heard_of_before_shutdown(sandbox: Sandbox) -> None:
    client = sandbox.client()
    assert client.transact("Upgrade", "(@a{sv} {},)").finished() == (True, "")
    fill = (
        "cp -a /boot /tmp && mount -t tmpfs -o size=128k tmpfs /boot && cp -a /tmp/boot/. /boot; cat /dev/zero >/boot/x"
    )
    sandbox.run("sh", "-c", fill, check=False)
    text = sandbox.run("ostree", "admin", "finalize-staged", check=False)
    assert "No space left on device" in text
    assert not sandbox.exists("/run/ostree/staged-deployment"), "the staged state is lost all the same"


def test_finalizing_wants_the_digest_of_an_image_and_reboots(sandbox: Sandbox) -> None:
    client, digest = sandbox.client(), sandbox.template.digests["2"]
    client.transact("Rebase", f"({LOCKED}, '{REFERENCE}:2', @as [])")
    checksum = client.deployments()[0]["checksum"]
    for options, text in (
        ("@a{sv} {}", "Missing expected checksum"),
        (f"{{'checksum': <'{checksum}'>}}", f"Expected staged base checksum {checksum}, but found {digest}"),
    ):
        assert client.transact("FinalizeDeployment", f"({options},)").finished() == (False, text)
    logind(sandbox, NOBODY)
    assert client.transact("FinalizeDeployment", f"({{'checksum': <'{digest}'>}},)").finished() == (True, "")
    sandbox.wait_until(lambda: "reboot" in sandbox.systemctl_calls())
    late = client.call(OS, "OS.Upgrade", "(@a{sv} {},)")
    assert late["message"] == "Reboot initiated, cannot start new transaction"
    assert late["error"].endswith(".Code0")
    shut_down(sandbox)
    assert client.deployments()[0]["staged"] is False


def test_finalizing_wants_the_base_of_a_layer(sandbox: Sandbox) -> None:
    client = sandbox.client()
    logind(sandbox, NOBODY)
    client.transact("PkgChange", f"({LOCKED}, ['vim'], @as [])")
    base = sandbox.template.commits["1"]
    assert client.transact("FinalizeDeployment", f"({{'checksum': <'{base}'>}},)").finished() == (True, "")


def test_finalizing_without_a_staged_or_a_locked_one(sandbox: Sandbox) -> None:
    client = sandbox.client()
    logind(sandbox, NOBODY)
    anything = "({'allow-missing-checksum': <true>},)"
    peer = client.transact("FinalizeDeployment", anything)
    assert peer.finished() == (False, "No pending staged deployment found")
    client.transact("Upgrade", "(@a{sv} {},)")
    peer = client.transact("FinalizeDeployment", anything)
    assert peer.finished() == (False, "Staged deployment already unlocked")
    peer = client.transact("FinalizeDeployment", "({'allow-missing-checksum': <true>, 'allow-unlocked': <true>},)")
    assert peer.finished() == (True, "")


def test_an_inhibitor_holds_the_reboot_after_the_staging(sandbox: Sandbox) -> None:
    client = sandbox.client()
    logind(
        sandbox,
        {
            "ListInhibitors": "([('sleep:shutdown', 'backup', 'not now', 'block', uint32 0, uint32 1),"
            " ('shutdown', 'other', 'later', 'delay', 0, 2), ('shutdown', 'third', 'no', 'block', 0, 3)],)"
        },
    )
    peer = client.transact("Upgrade", "({'reboot': <true>},)")
    success, text = peer.finished()
    assert not success
    assert text.startswith(
        "Reboot blocked by a systemd inhibitor lock in `block` mode\nHeld by: backup\nReason: not now\nand 1 other"
    )
    assert client.deployments()[0]["staged"] is True
    # Finalizing is refused before it unlocks anything.
    client.transact("KernelArgs", f"('', ['a=b'], @as [], @as [], {LOCKED})")
    peer = client.transact("FinalizeDeployment", "({'allow-missing-checksum': <true>},)")
    assert peer.finished()[1] == text
    shut_down(sandbox)
    assert client.deployments()[0]["staged"] is True
    assert "reboot" not in sandbox.systemctl_calls()


def test_kernel_arguments(sandbox: Sandbox) -> None:
    client = sandbox.client()
    booted = client.result(OS, "OS.GetDeploymentBootConfig", "('', false)")
    assert set(booted) >= {"staged", "options", "title", "linux", "initrd"}
    existing = booted["options"]
    assert existing.startswith("root=LABEL=root console=ttyS0 ostree=")
    body = (
        f"('{existing}', ['quiet'], @as [], @as [],"
        " {'append-if-missing': <['console=ttyS0', 'nosmt']>, 'delete-if-present': <['absent', 'root=LABEL=root']>})"
    )
    assert client.transact("KernelArgs", body).finished() == (True, "")
    staged = client.result(OS, "OS.GetDeploymentBootConfig", "('', true)")
    assert sorted(staged) == ["options", "staged"]
    words = staged["options"].split()
    assert [word for word in words if not word.startswith("ostree=")] == ["console=ttyS0", "quiet", "nosmt"]
    assert client.result(OS, "OS.GetDeploymentBootConfig", "('', false)")["options"] == existing
    # An update that follows keeps them.
    client.transact("Upgrade", "(@a{sv} {},)")
    assert "nosmt" in client.result(OS, "OS.GetDeploymentBootConfig", "('0', false)")["options"].split()
    options = f"{{'append-if-missing': <['ro']>, 'final-kernel-args': <'{existing}'>}}"
    unchanged = client.transact("KernelArgs", f"('{existing}', @as [], @as [], @as [], {options})")
    assert (unchanged.finished(), unchanged.texts()) == ((True, ""), ["No changes."])
    for arguments, text in (
        ("@as [], @as [], ['nope']", "No key 'nope' found"),
        ("@as [], @as [], ['root=other']", "No karg 'root=other' found"),
        ("@as [], ['x=y'], @as []", "No key 'x' found"),
    ):
        peer = client.transact("KernelArgs", f"('{existing}', {arguments}, @a{{sv}} {{}})")
        assert peer.finished() == (False, text)
    bad = client.call(OS, "OS.GetDeploymentBootConfig", "('9', false)")
    assert bad == {
        "error": "org.projectatomic.rpmostreed.Error.Failed",
        "message": "Out of range deployment index 9, expected < 2",
    }


def test_cleanup(sandbox: Sandbox) -> None:
    client = sandbox.client()
    nothing = client.transact("Cleanup", "(['pending-deploy', 'rollback-deploy'],)")
    assert nothing.texts() == ["Deployments unchanged."]
    client.transact("Rebase", f"({LOCKED}, '{REFERENCE}:2', @as [])")
    cleaned = client.transact("Cleanup", "(['pending-deploy'],)")
    assert cleaned.finished() == (True, "")
    assert cleaned.texts()[0] == f"Pruned images: 1 (layers: {CHUNKS + 1})"
    assert cleaned.texts()[1].startswith("Freed: ")
    assert [one["booted"] for one in client.deployments()] == [True]
    assert not sandbox.exists("/run/ostree/staged-deployment")
    assert sandbox.run("ostree", "refs", "ostree/container") == ""
    bad = client.call(OS, "OS.Cleanup", "(['everything'],)")
    assert bad["message"] == "Invalid cleanup type: everything"


def test_rollback(sandbox: Sandbox) -> None:
    client = sandbox.client()
    assert client.transact("Rollback", "(@a{sv} {},)").finished() == (False, "No rollback deployment found")
    client.transact("Upgrade", "(@a{sv} {},)")
    assert client.transact("Rollback", "(@a{sv} {},)").finished() == (
        False,
        "Staged deployment (remove with cleanup -p)",
    )
    shut_down(sandbox)
    client.deployments()
    checksum = sandbox.template.commits["1"]
    peer = client.transact("Rollback", "(@a{sv} {},)")
    assert peer.texts()[:1] == [f"Moving '{checksum}.0' to be first deployment"]
    assert [one["version"] for one in client.deployments()] == ["1", "3"]
    assert client.property(OS, "OS", "RollbackDeployment")["version"] == "3"


def test_what_others_do_to_the_system_is_seen(sandbox: Sandbox) -> None:
    client = sandbox.client()
    client.subscribe()
    client.deployments()
    sandbox.run("ostree", "admin", "pin", "0")

    def changes() -> list[Any]:
        return [one["body"] for one in client.messages() if one["member"] == "PropertiesChanged"]

    both = {f"org.projectatomic.rpmostree1.{name}" for name in ("Sysroot", "OS")}
    # One interface may tell twice first: its properties are set one by one while the main loop goes on.
    sandbox.wait_until(lambda: {body[0] for body in changes()} >= both)
    changed = changes()
    sysroot = next(body[1] for body in changed if body[0].endswith("Sysroot"))
    assert sysroot["Deployments"][0]["pinned"] is True
    assert sorted(sysroot) == ["Deployments"], "only what differs"
    assert client.property(SYSROOT, "Sysroot", "Deployments")[0]["origin"] == f"test:{BRANCH}"
