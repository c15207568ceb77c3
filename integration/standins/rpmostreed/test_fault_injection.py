# SPDX-License-Identifier: Apache-2.0
"""Cancelling, failing and misbehaving: what a client has to survive."""

from __future__ import annotations

import base64
import json

import pytest

from integration.standins.rpmostreed.sandbox.sandbox import NAME, OS, SYSROOT, Client, Peer, Sandbox
from integration.standins.rpmostreed.sandbox.template import IMAGE

REFERENCE = f"ostree-unverified-registry:{IMAGE}"
REBASE = f"(@a{{sv}} {{}}, '{REFERENCE}:2', @as [])"
OPEN_IMAGE = "Preparing import: Fetching manifest: failed to invoke method OpenImage: "


def begin(client: Client, body: str = REBASE, member: str = "Rebase") -> Peer:
    peer = client.peer(client.result(OS, f"OS.{member}", body))
    peer.start()
    return peer


def staged(client: Client) -> bool:
    return bool(client.deployments()[0]["staged"])


def test_cancelling_between_layers(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "layer:2", "do": "hang"})
    client = sandbox.client()
    peer = begin(client)
    sandbox.wait_until(lambda: len(peer.texts("TaskBegin")) == 2)
    assert peer.call("Cancel") == {"value": [], "text": "()"}, "the answer comes at once"
    assert peer.finished() == (False, "Operation was cancelled")
    assert not staged(client)


def test_cancelling_may_come_too_late(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "staged", "do": "sleep", "seconds": 2, "ignore_cancel": True})
    client = sandbox.client()
    peer = begin(client, "('root=LABEL=root', ['a=b'], @as [], @as [], @a{sv} {})", "KernelArgs")
    sandbox.wait_until(lambda: peer.texts("TaskEnd"))
    peer.call("Cancel")
    assert [name for name, _ in peer.signals() if name == "Finished"] == [], "it takes its time"
    success, text = peer.finished()
    assert success or "cancelled" in text
    peer.close()
    assert staged(client), "and what was done stays done"


def test_cancelling_a_pull_from_a_remote_has_a_prefix(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "start", "do": "sleep", "seconds": 2, "ignore_cancel": True})
    peer = begin(sandbox.client(), "(@a{sv} {},)", "Upgrade")
    peer.call("Cancel")
    success, text = peer.finished()
    assert not success
    assert text == "While pulling os/stable: Operation was cancelled"


def test_any_client_may_cancel(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "layer", "do": "hang"})
    client = sandbox.client()
    peer = begin(client)
    other = client.peer("unix:path=/run/rpm-ostree-transaction.sock")
    other.call("Cancel")
    assert peer.finished() == (False, "Operation was cancelled")


@pytest.mark.parametrize("point", ["layer:3", "stage", "staged", "finish"])
def test_dying_in_the_middle(sandbox: Sandbox, point: str) -> None:
    sandbox.inject_faults({"at": point, "do": "die", "times": 1})
    client = sandbox.client()
    peer = client.peer(client.result(OS, "OS.Rebase", REBASE))
    # It may die before its answer to this has left.
    peer.call("Start")
    assert peer.wait_closed(10)
    assert "Finished" not in [name for name, _ in peer.signals()]
    assert staged(client) is (point in ("staged", "finish")), "only the deployments say what happened"
    assert begin(client).finished()[1] in ("", f"Old and new refs are equal: {REFERENCE}:2")


def test_success_without_staging(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "stage", "do": "succeed"})
    client = sandbox.client()
    peer = client.transact("Rebase", REBASE)
    assert peer.finished() == (True, "")
    assert not staged(client)


def test_never_finishing(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "layer:1", "do": "hang", "ignore_cancel": True})
    client = sandbox.client()
    peer = begin(client)
    sandbox.wait_until(lambda: peer.texts("TaskBegin"))
    peer.call("Cancel")
    sandbox.run("sleep", "0.5")
    assert "Finished" not in [name for name, _ in peer.signals()]
    assert client.call(OS, "OS.Upgrade", "(@a{sv} {},)")["error"].endswith(".Code26")
    # The last resort is to restart the service.
    sandbox.run("pkill", "-KILL", "-f", "rpmostreed.standin$")
    assert peer.wait_closed(5)
    sandbox.inject_faults()
    client.deployments()
    assert client.transact("Rebase", REBASE).finished() == (True, "")


def test_a_full_disk(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "layer:2", "do": "fail", "error": "disk-full"})
    success, text = sandbox.client().transact("Rebase", REBASE).finished()
    assert not success
    assert text.startswith("Importing: Unencapsulating base: Layer sha256:")
    assert text.endswith("min-free-space-percent '3%' would be exceeded, at least 20.5 kB requested")


def test_a_disk_that_is_really_full(sandbox: Sandbox) -> None:
    client = sandbox.client()
    sandbox.run("ostree", "config", "set", "core.min-free-space-size", "100GB")
    success, text = client.transact("Rebase", REBASE).finished()
    assert not success
    assert text.startswith("Importing: Unencapsulating base: Layer sha256:")
    assert "min-free-space-size 102400MB would be exceeded, at least " in text


def test_busy_for_a_while(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "lock", "do": "fail", "error": "busy", "for": 1.5})
    client = sandbox.client()
    busy = client.call(OS, "OS.Rebase", REBASE)
    assert busy["error"].endswith(".Code26")
    assert busy["message"] == "System transaction in progress"
    sandbox.wait_until(lambda: "value" in client.call(OS, "OS.Rebase", REBASE))


def test_dropping_the_name(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "layer:2", "do": "drop-name", "times": 1})
    client = sandbox.client()
    client.bus("AddMatch", f"(\"type='signal',member='NameOwnerChanged',arg0='{NAME}'\",)")
    client.deployments()
    peer = begin(client)
    assert peer.finished() == (True, ""), "the transaction does not care"
    lost = [one["body"] for one in client.messages() if one["member"] == "NameOwnerChanged" and one["body"][2] == ""]
    assert len(lost) == 1


def test_the_network_fails_and_then_works(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "pull", "do": "fail", "error": "timeout", "times": 2})
    client = sandbox.client()
    for _ in range(2):
        assert client.transact("Rebase", REBASE).finished() == (
            False,
            OPEN_IMAGE
            + 'pinging container registry quay.io: Get "https://quay.io/v2/": net/http: TLS handshake timeout',
        )
    assert client.transact("Rebase", REBASE).finished() == (True, "")


def test_an_answer_that_never_comes(sandbox: Sandbox) -> None:
    sandbox.inject_faults(
        {"at": "method:Reload", "do": "swallow", "times": 1},
        {"at": "method:GetOS", "do": "fail", "message": "once", "times": 1},
    )
    client = sandbox.client()
    assert client.call(SYSROOT, "Sysroot.GetOS", "('tiny',)")["message"] == "once"
    assert client.result(SYSROOT, "Sysroot.GetOS", "('tiny',)") == OS
    client.property(SYSROOT, "Sysroot", "Booted")
    assert client.call(SYSROOT, "Sysroot.Reload", timeout=0.5) == {"timeout": True}
    assert client.result(SYSROOT, "Sysroot.Reload") == []


def publish(sandbox: Sandbox, name: str, *options: str) -> None:
    sandbox.run(
        *("python3", "-BP", "-m", "integration.standins.rpmostreed.standin.publish", "--registry=/registry"),
        *("--from=/registry/repo", f"--commit={sandbox.template.commits['2']}", f"--name={name}", "--tag=latest"),
        *("--chunks=0", *options),
    )


def test_credentials(sandbox: Sandbox) -> None:
    publish(sandbox, "quay.io/secret/os", "--user=me", "--password=pass")
    client = sandbox.client()
    body = "(@a{sv} {}, 'ostree-unverified-registry:quay.io/secret/os:latest', @as [])"
    refused = (
        False,
        f"{OPEN_IMAGE}reading manifest latest in quay.io/secret/os: "
        "unauthorized: access to the requested resource is not authorized",
    )
    right = {"auth": base64.b64encode(b"me:pass").decode()}
    wrong = {"auth": base64.b64encode(b"me:nope").decode()}
    assert client.transact("Rebase", body).finished() == refused
    sandbox.write("/etc/ostree/auth.json", json.dumps({"auths": {"quay.io": wrong, "quay.io/secret": right}}))
    # The first file that exists is the only one, whatever the other has.
    sandbox.write("/run/ostree/auth.json", json.dumps({"auths": {"registry.example": right}}))
    assert client.transact("Rebase", body).finished() == refused
    sandbox.run("rm", "/run/ostree/auth.json")
    assert client.transact("Rebase", body).finished() == (True, "")


def test_signatures(sandbox: Sandbox) -> None:
    for name in ("good", "bad", "none"):
        publish(sandbox, f"quay.io/{name}/os", f"--signature={name}")
    client = sandbox.client()

    def outcome(reference: str) -> str:
        return client.transact("Rebase", f"(@a{{sv}} {{}}, '{reference}:latest', @as [])").finished()[1]

    signed = "ostree-image-signed:docker://quay.io"
    assert outcome(f"{signed}/good/os") == (
        f"{OPEN_IMAGE}containers-policy.json specifies a default of `insecureAcceptAnything`; refusing usage"
    )
    required = [{"type": "sigstoreSigned", "keyPath": "/etc/key"}]
    policy = {"default": [{"type": "reject"}], "transports": {"docker": {"quay.io": required}}}
    sandbox.write("/etc/containers/policy.json", json.dumps(policy))
    assert outcome(f"{signed}/none/os") == f"{OPEN_IMAGE}A signature was required, but no signature exists"
    assert outcome("ostree-unverified-registry:quay.io/none/os").endswith("but no signature exists")
    assert "invalid signature when validating" in outcome(f"{signed}/bad/os")
    assert outcome(f"{signed}/good/os") == ""
