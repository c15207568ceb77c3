# SPDX-License-Identifier: Apache-2.0
"""Where the daemon ends, and what a failure leaves staged: differences to the real one that a client fell for."""

from __future__ import annotations

import pytest

from integration.standins.rpmostreed import install
from integration.standins.rpmostreed.conftest import MakeAgent, SandboxMaker
from integration.standins.rpmostreed.sandbox.sandbox import OS, Sandbox
from integration.standins.rpmostreed.sandbox.template import IMAGE
from nodeagent.core.config.image import parse_image
from nodeagent.core.plan.deployment import OsTarget

REFERENCE = f"ostree-unverified-registry:{IMAGE}"
REBASE = f"(@a{{sv}} {{}}, '{REFERENCE}:2', @as [])"
ABORTED = "assertion failed: (value)"
NO_TRUE = "Sanity-checking final rootfs: bwrap(/usr/bin/true): Child process exited with code 1"


def to(sandbox: Sandbox, **more: object) -> OsTarget:
    return OsTarget(image=parse_image(f"{IMAGE}@{sandbox.template.digests['2']}"), **more)  # type: ignore[arg-type]


def without_arguments(sandbox: Sandbox) -> str:
    """Stages a deployment as an admin does; libostree then notes no kernel arguments. Its checksum."""
    sandbox.run("ostree", "pull", "test", sandbox.template.commits["2"])
    command = ["ostree", "admin", "deploy", "--stage", "--os=tiny", sandbox.template.commits["2"]]
    sandbox.run(*command, PATH="/run/bin:/usr/sbin:/usr/bin")  # libostree starts a unit
    return sandbox.template.commits["2"]


@pytest.mark.finding("stand-in: boot entries", "The stand-in aborts where a boot entry lacks a key.")
def test_the_daemon_aborts_for_an_entry_that_lacks_a_key(sandbox: Sandbox) -> None:
    without_arguments(sandbox)
    client = sandbox.client()
    answer = client.call(OS, "OS.GetDeploymentBootConfig", "('', true)")
    assert answer["error"] == "org.freedesktop.DBus.Error.NoReply"
    assert ABORTED in sandbox.daemon_log()
    # The booted one has an entry with a kernel and an initramfs.
    assert "error" not in client.call(OS, "OS.GetDeploymentBootConfig", "('', false)")


@pytest.mark.finding(
    "rpm-ostreed: boot entries",
    "The daemon is never queried for a boot entry; kernel arguments are read from /boot and from the staged state.",
)
def test_the_agent_ends_no_daemon(sandbox: Sandbox, make_agent: MakeAgent) -> None:
    checksum = without_arguments(sandbox)
    agent = make_agent(sandbox)
    theirs, booted = agent.list()
    assert theirs["checksum"] == checksum
    ours = [token for token in booted["kernel_arguments"] if not token.startswith("ostree=")]
    assert theirs["kernel_arguments"][: len(ours)] == ours == ["root=LABEL=root", "console=ttyS0"]
    assert agent.stage(to(sandbox)).reason == "StagedByOther"
    assert agent.ask("rollback").reason == "StagedByOther"
    assert ABORTED not in sandbox.daemon_log()


@pytest.mark.finding(
    "rpm-ostreed: failed transactions",
    "What a failed transaction left staged is discarded, and an image that fails the sanity check is `ImageBroken`.",
)
@pytest.mark.finding(
    "stand-in: checks after a staging", "It checks a deployment after the staging, and leaves it staged if that fails."
)
def test_the_sanity_check_comes_after_the_staging(make_sandbox: SandboxMaker, make_agent: MakeAgent) -> None:
    sandbox = make_sandbox(sanity_check=1)
    client = sandbox.client()
    assert client.transact("Rebase", REBASE).finished() == (False, NO_TRUE)
    assert client.deployments()[0]["staged"] is True, "what it refused is left staged"
    assert sandbox.run("ls", "/var/lib/rpm-ostree/history").split()
    client.transact("Cleanup", "(['pending-deploy'],)")
    agent = make_agent(sandbox)
    for _ in range(2):
        answer = agent.stage(to(sandbox))
        assert (answer.kind, answer.reason) == ("Terminal", "ImageBroken")
        assert NO_TRUE in answer.message
        assert [one["booted"] for one in agent.list()] == [True]


@pytest.mark.finding("stand-in: failures after a staging", "It can fail after the staging: history, cleanup.")
@pytest.mark.parametrize("point", ["history", "cleanup"])
def test_whatever_fails_after_the_staging_is_discarded(sandbox: Sandbox, make_agent: MakeAgent, point: str) -> None:
    sandbox.inject_faults({"at": point, "do": "fail", "message": "Input/output error", "times": 1})
    agent, target = make_agent(sandbox), to(sandbox, kernel_arguments=("nosmt",))
    answer = agent.stage(target)
    assert (answer.kind, answer.reason) == ("Retryable", "StageFailed")
    assert [one["booted"] for one in agent.list()] == [True]
    staged = agent.stage(target).result
    assert staged["kernel_arguments"][-1] == "nosmt"
    assert staged["locked"] is True


def test_what_could_not_be_discarded_is_not_accepted(sandbox: Sandbox, make_agent: MakeAgent) -> None:
    sandbox.inject_faults(
        {"at": "sanity", "do": "fail", "message": NO_TRUE, "times": 1},
        {"at": "method:Cleanup", "do": "fail", "message": "Input/output error", "times": 2},
    )
    agent = make_agent(sandbox)
    first = agent.stage(to(sandbox))
    assert (first.kind, first.reason) == ("Terminal", "ImageBroken")
    assert "Input/output error" in first.message
    (left,) = (one for one in agent.list() if one["staged"])
    assert left["locked"] is True
    again = agent.stage(to(sandbox))
    assert (again.kind, "Input/output error" in again.message) == ("Retryable", True)
    assert agent.ask("unlock", id=left["id"]).reason == "StagedLost"
    third = agent.stage(to(sandbox))
    assert third.result["locked"] is True
    assert "Staging deployment" in third.tasks, "it was discarded and staged once more"


@pytest.mark.finding("stand-in: cancelled pulls", "Cancel ends a pull inside a layer.")
def test_cancelling_inside_a_layer(sandbox: Sandbox) -> None:
    """The import is dropped at once, and so is the layer under way."""
    sandbox.inject_faults({"at": "inside:2", "do": "sleep", "seconds": 1, "ignore_cancel": True})
    client = sandbox.client()
    peer = client.peer(client.result(OS, "OS.Rebase", REBASE))
    peer.start()
    sandbox.wait_until(lambda: len(peer.texts("TaskBegin")) == 2)
    peer.call("Cancel")
    assert peer.finished() == (False, "Operation was cancelled")
    assert len(sandbox.run("ostree", "refs", "ostree/container/blob").split()) == 1


@pytest.mark.finding("stand-in: types of properties", "`base-remote-replacements` is an `a{sv}`.")
@pytest.mark.finding("stand-in: metadata of commits", "`ostree.bootable` of the test commits is a boolean.")
def test_types_of_unused_properties(sandbox: Sandbox) -> None:
    (booted,) = sandbox.client().deployments()
    assert booted["base-remote-replacements"] == {}
    shown = sandbox.run("ostree", "show", "--print-metadata-key=ostree.bootable", booted["checksum"])
    assert shown.strip() == "true", "a boolean, as the real encapsulate wants it"


@pytest.mark.finding(
    "stand-in: actions of polkit, stand-in: unit file", "The polkit actions and the unit are those of 2026.2."
)
def test_the_files_are_those_of_2026() -> None:
    policy = (install.HERE / "files/org.projectatomic.rpmostree1.policy").read_text()
    assert policy.count("<allow_active>auth_admin_keep</allow_active>") == 14
    assert "<allow_active>auth_admin</allow_active>" not in policy
    unit = (install.HERE / "files/rpm-ostreed.service").read_text().splitlines()
    assert {"User=rpm-ostree", "DynamicUser=yes"} < set(unit)
    assert any(line.startswith("ExecStart=+") for line in unit)
