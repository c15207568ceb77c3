# SPDX-License-Identifier: Apache-2.0
"""nodeagent's adapter against the stand-in: two programs that share no code, on a real libostree."""

from __future__ import annotations

from typing import Any

import pytest

from integration.standins.rpmostreed.adapter_process import Agent, Answer
from integration.standins.rpmostreed.conftest import MakeAgent, SandboxMaker
from integration.standins.rpmostreed.sandbox.sandbox import OS, Sandbox
from integration.standins.rpmostreed.sandbox.template import BRANCH, IMAGE
from nodeagent.core.config.image import ContainerImage, OstreeCommit
from nodeagent.core.plan.deployment import OsTarget, target_to_dict

YEARS = (2022, 2024, 2026)


def container(sandbox: Sandbox, version: str = "2") -> ContainerImage:
    return ContainerImage("ostree-unverified-registry:", IMAGE, sandbox.template.digests[version])


def commit(sandbox: Sandbox, version: str) -> OstreeCommit:
    return OstreeCommit("test", BRANCH, sandbox.template.commits[version])


def good(answer: Answer) -> dict[str, Any]:
    assert not answer.kind, answer
    result = answer.result
    assert result["staged"]
    assert result["locked"] is True
    return dict(result)


# -- what works -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("year", YEARS)
def test_a_container_with_kernel_arguments_and_packages(
    make_sandbox: SandboxMaker, make_agent: MakeAgent, year: int
) -> None:
    sandbox = make_sandbox(like=year)
    agent = make_agent(sandbox)
    before = agent.list()
    assert [d["booted"] for d in before] == [True]
    assert before[0]["origin"] == f"test:{BRANCH}"
    target = OsTarget(
        image=container(sandbox),
        kernel_arguments=("nosmt", "console=tty0"),
        without_kernel_arguments=("console=ttyS0",),
        packages=frozenset({"vim"}),
    )
    answer = agent.stage(target)
    staged = good(answer)
    assert staged["digest"] == sandbox.template.digests["2"]
    assert staged["packages"] == ["vim"]
    assert staged["version"].startswith("2")
    assert [t for t in staged["kernel_arguments"] if not t.startswith("ostree=")] == [
        "root=LABEL=root",
        "nosmt",
        "console=tty0",
    ]
    assert any("layer" in task.lower() or "chunk" in task.lower() for task in answer.tasks)
    again = agent.stage(target)
    assert good(again)["id"] == staged["id"]
    assert not again.tasks
    assert sandbox.client().property("/org/projectatomic/rpmostree1/Sysroot", "Sysroot", "ActiveTransactionPath") == ""


@pytest.mark.parametrize("year", YEARS)
def test_commits_of_the_same_branch(make_sandbox: SandboxMaker, make_agent: MakeAgent, year: int) -> None:
    sandbox = make_sandbox(like=year)
    agent = make_agent(sandbox)
    first = good(agent.stage(OsTarget(image=commit(sandbox, "3"))))
    assert first["checksum"] == sandbox.template.commits["3"]
    # An older one: the origin of the staged deployment counts, and so does the age.
    second = good(agent.stage(OsTarget(image=commit(sandbox, "old")), replace=first["id"]))
    assert second["checksum"] == sandbox.template.commits["old"]


def test_back_and_forth_between_a_container_and_a_commit(sandbox: Sandbox, agent: Agent) -> None:
    image = good(agent.stage(OsTarget(image=container(sandbox))))
    tree = good(agent.stage(OsTarget(image=commit(sandbox, "2")), replace=image["id"]))
    assert (tree["image"], tree["origin"]) == ("", f"test:{BRANCH}")
    assert good(agent.stage(OsTarget(image=container(sandbox)), replace=tree["id"]))["digest"] == image["digest"]


@pytest.mark.parametrize("year", YEARS)
def test_kernel_arguments_alone(make_sandbox: SandboxMaker, make_agent: MakeAgent, year: int) -> None:
    sandbox = make_sandbox(like=year)
    agent = make_agent(sandbox)
    first = good(agent.stage(OsTarget(kernel_arguments=("a=1", "a=2"), without_kernel_arguments=("console=ttyS0",))))
    assert [t for t in first["kernel_arguments"] if t[0] in "ac"] == ["a=1", "a=2"]
    # A later config, before the reboot: nothing of the former is left, and nothing comes twice.
    second = good(agent.stage(OsTarget(kernel_arguments=("a=2", "a=1")), replace=first["id"]))
    assert [t for t in second["kernel_arguments"] if t[0] in "ac"] == ["console=ttyS0", "a=2", "a=1"]


def test_packages_alone_and_without_again(sandbox: Sandbox, agent: Agent) -> None:
    first = good(agent.stage(OsTarget(packages=frozenset({"vim", "bash"}))))  # bash is in the image
    assert first["packages"] == ["bash", "vim"]
    second = good(agent.stage(OsTarget(kernel_arguments=("x",)), replace=first["id"]))
    assert second["packages"] == []


@pytest.mark.parametrize("year", YEARS)
def test_discard(make_sandbox: SandboxMaker, make_agent: MakeAgent, year: int) -> None:
    sandbox = make_sandbox(like=year)
    agent = make_agent(sandbox)
    good(agent.stage(OsTarget(kernel_arguments=("x",))))
    assert not agent.ask("discard").kind
    assert [d["booted"] for d in agent.list()] == [True]
    assert not agent.ask("discard").kind
    assert agent.ask("rollback").reason == "NoRollback"


@pytest.mark.parametrize("year", (2022, 2024))
def test_a_lock_that_is_a_file_is_opened(make_sandbox: SandboxMaker, make_agent: MakeAgent, year: int) -> None:
    sandbox = make_sandbox(like=year)
    agent = make_agent(sandbox)
    staged = good(agent.stage(OsTarget(image=container(sandbox), kernel_arguments=("x",))))
    assert not agent.ask("unlock", deployment=staged["id"]).kind
    assert agent.list()[0]["locked"] is False
    assert agent.ask("unlock", deployment="other").reason == "StagedLost"


def test_no_other_client(sandbox: Sandbox, agent: Agent) -> None:
    assert not agent.ask("guard", target=target_to_dict(OsTarget(image=container(sandbox)))).kind


# -- others -----------------------------------------------------------------------------------------------------------


def test_a_manually_staged_deployment_stays(sandbox: Sandbox, agent: Agent) -> None:
    sandbox.client().transact("Rebase", f"(@a{{sv}} {{}}, 'ostree-unverified-registry:{IMAGE}:3', @as [])")
    theirs = agent.list()[0]
    assert (theirs["staged"], theirs["locked"]) == (True, False)
    answer = agent.stage(OsTarget(image=container(sandbox)))
    assert (answer.kind, answer.reason) == ("Refused", "StagedByOther")
    assert agent.ask("rollback").reason == "StagedByOther"
    assert agent.list()[0]["id"] == theirs["id"]


def test_waits_for_an_operator(sandbox: Sandbox, agent: Agent) -> None:
    agent.list()  # it is up, so that it finds the transaction while that lasts
    sandbox.inject_faults({"at": "layer:2", "do": "sleep", "seconds": 4, "times": 1})
    client = sandbox.client()
    peer = client.peer(
        client.result(OS, "OS.Rebase", f"(@a{{sv}} {{}}, 'ostree-unverified-registry:{IMAGE}:3', @as [])")
    )
    peer.start()
    agent.begin_stage(OsTarget(image=container(sandbox)))
    peer.finished()
    peer.close()
    answer = agent.answer()
    assert answer.reason == "StagedByOther"  # by then it is theirs
    assert "Waiting for the transaction 'rebase' of " in answer.tasks[0]


def test_busy_for_too_long(sandbox: Sandbox, make_agent: MakeAgent) -> None:
    sandbox.inject_faults({"at": "lock", "do": "fail", "error": "busy"})
    answer = make_agent(sandbox, busy=1.0).stage(OsTarget(image=container(sandbox)))
    assert (answer.kind, answer.reason) == ("Refused", "TransactionBusy")
    assert "Waiting for another program" in answer.tasks[0]


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["start", "layer:2", "stage", "staged", "finish"])
def test_a_daemon_that_dies(sandbox: Sandbox, agent: Agent, point: str) -> None:
    sandbox.inject_faults({"at": point, "do": "die", "times": 1})
    staged = good(agent.stage(OsTarget(image=container(sandbox), kernel_arguments=("x",))))
    assert [t for t in staged["kernel_arguments"] if t == "x"] == ["x"]


def test_a_daemon_that_always_dies(sandbox: Sandbox, agent: Agent) -> None:
    sandbox.inject_faults({"at": "layer", "do": "die"})
    answer = agent.stage(OsTarget(image=container(sandbox)))
    assert (answer.kind, answer.reason) == ("Retryable", "TransactionLost")


def test_success_without_a_deployment(sandbox: Sandbox, agent: Agent) -> None:
    sandbox.inject_faults({"at": "stage", "do": "succeed"})
    answer = agent.stage(OsTarget(image=container(sandbox)))
    assert (answer.kind, answer.reason) == ("Terminal", "StageIncomplete")


def test_a_name_that_drops(sandbox: Sandbox, agent: Agent) -> None:
    sandbox.inject_faults({"at": "layer:2", "do": "drop-name", "times": 1})
    good(agent.stage(OsTarget(image=container(sandbox))))


@pytest.mark.parametrize("ignores", [False, True])
def test_silence(sandbox: Sandbox, make_agent: MakeAgent, ignores: bool) -> None:
    agent = make_agent(sandbox, stall=1.0, cancel=1.0)
    sandbox.inject_faults({"at": "layer:2", "do": "hang", "ignore_cancel": ignores})
    answer = agent.stage(OsTarget(image=container(sandbox)))
    assert (answer.kind, answer.reason) == ("Retryable", "TransactionStuck")
    done = [what for what in answer.services if what != "start rpm-ostreed.service"]  # it may have been idle
    assert done == (["restart rpm-ostreed.service"] if ignores else [])
    sandbox.inject_faults()
    good(agent.stage(OsTarget(image=container(sandbox))))


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        ("network", "Retryable", "RegistryUnreachable"),
        ("unauthorized", "Terminal", "Unauthorized"),
        ("not-found", "Terminal", "ImageNotFound"),
        ("signature", "Terminal", "SignatureInvalid"),
        ("disk-full", "Terminal", "NoSpace"),
    ],
)
@pytest.mark.parametrize("year", [2022, 2026])
def test_errors_of_a_pull(
    make_sandbox: SandboxMaker, make_agent: MakeAgent, year: int, error: str, kind: str, reason: str
) -> None:
    sandbox = make_sandbox(like=year)
    point = "layer:2" if error == "disk-full" else "pull"
    sandbox.inject_faults({"at": point, "do": "fail", "error": error})
    answer = make_agent(sandbox).stage(OsTarget(image=container(sandbox)))
    assert (answer.kind, answer.reason) == (kind, reason), answer.message


def test_an_image_that_is_not_there(sandbox: Sandbox, agent: Agent) -> None:
    missing = ContainerImage("ostree-unverified-registry:", IMAGE, f"sha256:{'0' * 64}")
    assert agent.stage(OsTarget(image=missing)).reason == "ImageNotFound"
    answer = agent.stage(OsTarget(image=OstreeCommit("test", "os/none", "0" * 64)))
    assert answer.reason == "ImageNotFound", answer


# -- we go away -------------------------------------------------------------------------------------------------------


def reached(sandbox: Sandbox) -> bool:
    """The stand-in injects the faults."""
    return sandbox.read("/run/rpmostreed-standin.json.used") is not None


def test_cancelled(sandbox: Sandbox, make_agent: MakeAgent) -> None:
    sandbox.inject_faults({"at": "layer:2", "do": "hang", "times": 1})
    agent = make_agent(sandbox, stall=60.0)
    answer = agent.stage(OsTarget(image=container(sandbox)), cancel_after=5.0)
    assert answer.kind == "cancelled"
    assert reached(sandbox)
    assert [d["booted"] for d in agent.list()] == [True]
    assert not good(agent.stage(OsTarget(image=container(sandbox))))["booted"]


def test_killed_and_joined_again(sandbox: Sandbox, make_agent: MakeAgent) -> None:
    sandbox.inject_faults({"at": "layer:2", "do": "sleep", "seconds": 4, "times": 1})
    target = OsTarget(image=container(sandbox), kernel_arguments=("x",))
    first = make_agent(sandbox)
    first.begin_stage(target, credentials='{"auths": {}}')
    sandbox.wait_until(lambda: reached(sandbox))
    first.kill()
    assert sandbox.read("/run/ostree/auth.json") is not None
    answer = make_agent(sandbox).stage(target, credentials='{"auths": {}}')
    good(answer)
    assert not any("Waiting for" in task for task in answer.tasks)
    assert sandbox.read("/run/ostree/auth.json") is None


def test_killed_and_another_target(sandbox: Sandbox, make_agent: MakeAgent) -> None:
    sandbox.inject_faults({"at": "layer:2", "do": "hang", "times": 1})
    first = make_agent(sandbox)
    first.begin_stage(OsTarget(image=container(sandbox, "2")))
    sandbox.wait_until(lambda: reached(sandbox))
    first.kill()
    answer = make_agent(sandbox).stage(OsTarget(image=container(sandbox, "3")))
    assert good(answer)["digest"] == sandbox.template.digests["3"]
    assert "earlier transaction of nodeagent" in answer.tasks[0]
