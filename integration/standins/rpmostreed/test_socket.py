# SPDX-License-Identifier: Apache-2.0
"""The transaction's own socket: its address, who hears what in which order, and how long it lives."""

from __future__ import annotations

import pytest

from integration.standins.rpmostreed.conftest import SandboxMaker
from integration.standins.rpmostreed.sandbox.sandbox import NAME, OS, SYSROOT, Sandbox, SandboxError
from integration.standins.rpmostreed.sandbox.template import IMAGE

ADDRESS = "unix:path=/run/rpm-ostree-transaction.sock"
BUSY = "org.gtk.GDBus.UnmappedGError.Quark._g_2dio_2derror_2dquark.Code26"
CLEANUP = "(['base'],)"
REBASE = f"(@a{{sv}} {{}}, 'ostree-unverified-registry:{IMAGE}:2', @as [])"
UPGRADE = "(@a{sv} {},)"


def test_signals_come_on_the_peer_only_and_without_a_sender(sandbox: Sandbox) -> None:
    client = sandbox.client()
    client.subscribe()
    peer = client.transact("Rebase", REBASE)
    names = {name for name, _ in peer.signals()}
    assert {"Message", "TaskBegin", "TaskEnd", "ProgressEnd", "Finished"} <= names
    assert {one["path"] for one in peer.messages() if one["kind"] == "signal"} == {"/"}
    assert {(one["sender"], one["destination"]) for one in peer.messages() if one["kind"] == "signal"} == {(None, None)}
    assert not [one for one in client.messages() if one["interface"] == f"{NAME}.Transaction"]
    refused = client.call("/", "Transaction.Start")
    assert refused["error"] in (
        "org.freedesktop.DBus.Error.UnknownMethod",
        "org.freedesktop.DBus.Error.UnknownObject",
        "org.freedesktop.DBus.Error.AccessDenied",
    )


def test_signals_come_before_the_answer_to_start(sandbox: Sandbox) -> None:
    client = sandbox.client()
    peer = client.transact("Rebase", REBASE)
    kinds = [one["kind"] for one in peer.messages()]
    assert kinds.index("signal") < kinds.index("method-return")


def test_who_comes_late_hears_finished_alone(sandbox: Sandbox) -> None:
    client = sandbox.client()
    first = client.transact("Cleanup", CLEANUP, leave=False)
    late = client.peer(ADDRESS)
    assert late.start() is False
    assert late.finished() == (True, "")
    assert [name for name, _ in late.signals()] == ["Finished"]
    assert [name for name, _ in first.signals()].count("Finished") == 1


def test_all_peers_hear_all_and_only_one_started(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "start", "do": "sleep", "seconds": 1.5})
    client = sandbox.client()
    peer, watcher = (client.peer(client.result(OS, "OS.Rebase", REBASE)) for _ in range(2))
    assert (peer.start(), watcher.start()) == (True, False)
    peer.finished()
    watcher.finished()
    client.result(SYSROOT, "org.freedesktop.DBus.Peer.Ping")
    assert [one for one in peer.signals() if one[0] != "Finished"] == [
        one for one in watcher.signals() if one[0] != "Finished"
    ]


def test_the_transaction_is_active_until_the_last_peer_leaves(sandbox: Sandbox) -> None:
    client = sandbox.client()
    peer = client.transact("Cleanup", CLEANUP, leave=False)
    assert client.property(SYSROOT, "Sysroot", "ActiveTransactionPath") == ADDRESS
    assert client.property(SYSROOT, "Sysroot", "ActiveTransaction") == ["Cleanup", client.name, OS]
    assert client.call(OS, "OS.Upgrade", UPGRADE)["error"] == BUSY
    peer.close()
    client.deployments()
    assert client.property(SYSROOT, "Sysroot", "ActiveTransactionPath") == ""
    assert client.property(SYSROOT, "Sysroot", "ActiveTransaction") == ["", "", ""]


def test_peers_that_stay_are_thrown_out_after_a_while(make_sandbox: SandboxMaker) -> None:
    client = make_sandbox(force_close=1).client()
    peer = client.transact("Cleanup", CLEANUP, leave=False)
    assert peer.wait_closed(5)
    client.deployments()
    assert client.property(SYSROOT, "Sysroot", "ActiveTransactionPath") == ""


def test_it_goes_on_without_the_client_that_started_it(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "layer", "do": "sleep", "seconds": 0.2})
    client = sandbox.client()
    peer = client.peer(client.result(OS, "OS.Rebase", REBASE))
    peer.start()
    peer.close()
    client.close()
    other = sandbox.client()
    assert other.property(SYSROOT, "Sysroot", "ActiveTransactionPath") == ADDRESS
    sandbox.wait_until(lambda: other.property(SYSROOT, "Sysroot", "ActiveTransactionPath") == "")
    assert other.deployments()[0]["staged"] is True


def test_it_is_dropped_when_the_client_leaves_before_start(sandbox: Sandbox) -> None:
    client, other = sandbox.client(), sandbox.client()
    client.result(OS, "OS.Rebase", REBASE)
    assert other.property(SYSROOT, "Sysroot", "ActiveTransactionPath") == ADDRESS
    client.close()
    sandbox.wait_until(lambda: other.property(SYSROOT, "Sysroot", "ActiveTransactionPath") == "")
    assert other.deployments()[0]["booted"] is True
    with pytest.raises(SandboxError, match="No such file"):
        other.peer(ADDRESS)


def test_a_client_that_never_starts_blocks_all_others(sandbox: Sandbox) -> None:
    client, other = sandbox.client(), sandbox.client()
    client.result(OS, "OS.Rebase", REBASE)
    for _ in range(3):
        busy = other.call(OS, "OS.Upgrade", UPGRADE)
        assert busy["error"] == BUSY
        assert busy["message"] == (
            "Transaction in progress: new-deployment\n You can cancel the current transaction with `rpm-ostree cancel`"
        )


def test_the_title_is_the_command_line_and_the_client_is_described(sandbox: Sandbox) -> None:
    client = sandbox.client()
    client.result(SYSROOT, "Sysroot.RegisterClient", "({'id': <'me'>},)")
    peer = client.transact("Upgrade", "({'initiating-command-line': <'do it'>},)", leave=False)
    assert peer.properties()["Title"] == "do it"
    description = peer.properties()["InitiatingClientDescription"]
    assert description.startswith(f"client(id:me dbus{client.name}")
    assert description.endswith("uid:0)")


def test_the_same_request_joins(sandbox: Sandbox) -> None:
    one, other = sandbox.client(), sandbox.client()
    options = "{'lock-finalization': <true>, 'allow-downgrade': <true>}"
    swapped = "{'allow-downgrade': <true>, 'lock-finalization': <true>}"
    address = one.result(OS, "OS.Upgrade", f"({options},)")
    assert other.result(OS, "OS.Upgrade", f"({options},)") == address
    peer, joined = one.peer(address), other.peer(address)
    assert (peer.start(), joined.start()) == (True, False)
    assert peer.finished() == joined.finished()
    assert other.call(OS, "OS.Upgrade", f"({swapped},)")["error"] == BUSY, "key order makes another request"
    assert other.result(OS, "OS.Upgrade", f"({options},)") == address, "also one that is over and not yet released"


def test_another_process_with_the_lock(sandbox: Sandbox) -> None:
    sandbox.background(
        "import time; from integration.standins.rpmostreed.standin.gir import OSTree; s = OSTree.Sysroot.new_default();"
        "s.load(None); s.lock(); print('locked', flush=True); time.sleep(60)"
    )
    busy = sandbox.client().call(OS, "OS.Cleanup", CLEANUP)
    assert busy == {"error": BUSY, "message": "System transaction in progress"}


def test_no_order_between_the_two_sockets(sandbox: Sandbox) -> None:
    client = sandbox.client()
    client.subscribe()
    client.deployments()
    peer = client.transact("KernelArgs", "('', ['a=b'], @as [], @as [], @a{sv} {})")
    client.result(SYSROOT, "Sysroot.Reload")
    changes = [one for one in client.messages() if one["member"] == "PropertiesChanged"]
    finished = next(one["at"] for one in peer.messages() if one["member"] == "Finished")
    reloaded = client.messages()[-1]
    staged = [one["at"] for one in changes if "Deployments" in one["body"][1]]
    assert staged, "it came before the answer to Reload"
    assert reloaded["kind"] == "method-return"
    assert finished < reloaded["at"]
