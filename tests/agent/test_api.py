# SPDX-License-Identifier: Apache-2.0
"""The methods of the daemon, on the host in memory."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nodeagent.agent.api import Api
from nodeagent.agent.loop import Loop
from nodeagent.agent.report.report import Report
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import UnitEntry, meaning
from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import AgentError, InvalidInput, Refused, Unreconcilable
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.update.history.lasting import Hold
from nodeagent.update.next.desired import DesiredSource
from nodeagent.update.next.preflight import Desired
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.states import Phase
from tests.world import FakeDeployments, Fault, lost_answer
from tests.world.os_host import A_DIGEST, B_DIGEST, KARGS, NEW, at_old, booted_digest, on
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

DESIRED = "/etc/nodeagent/machineconfig.yaml"


async def nothing_desired() -> None:
    return None


SOURCE = DesiredSource(
    read=nothing_desired,
    retry=lambda name: f"retry {name}",
    complete=lambda name: name.startswith("rendered-"),
)


def api(host: Host, phase: Phase = Phase.IDLE, *, path: str = DESIRED, loop: Loop | None = None) -> Api:
    """A text is the digest of a config of the host. ``loop``: that of the daemon that runs already."""
    loop = loop or host.build()

    async def nothing(*_: object) -> None: ...

    async def parse(text: bytes) -> Desired:
        return await host._load(text.decode())

    report = Report(Status(phase=phase))
    return Api(
        loop.ports,
        loop,
        report,
        desired_path=path,
        source=None if path else SOURCE,
        parse=parse,
        load=host._load,
        valid=host._load,
        desired=host._desired,
        read_again=nothing,
        calls={},
    )


async def test_with_a_cluster_source_apply_is_refused() -> None:
    asked = api(await at_old(), path="")
    for call in (asked.apply("text"), asked.rollback()):
        with pytest.raises(Refused) as caught:
            await call
        assert caught.value.reason == "ClusterDecides"


async def test_rollback_writes_the_config_before_and_avoids_the_present_one() -> None:
    host = await at_old()
    old = host.world.current
    host.want(NEW)
    await host.settle()
    new = host.world.current
    asked = api(host)
    assert await asked.rollback() == "old"
    assert host.world.disk[DESIRED] == RegularFile(b"", 0o600)
    assert host.world.request == ApplyRequest(old, new, meaning(NEW))


@pytest.mark.finding(
    "users: the plan of a rollback", "A rollback shows its plan and prompts, with the options of apply."
)
async def test_the_plan_of_a_rollback() -> None:
    host = await at_old()
    host.want(NEW)
    await host.settle()
    asked = api(host)
    plan = json.loads(await asked.plan("", rollback=True))
    assert (plan["from"], plan["to"], plan["disruption"]) == (NEW.name, "old", "reboot")
    with pytest.raises(Refused) as caught:
        await asked.rollback(["drain"])
    assert (caught.value.reason, DESIRED in host.world.disk) == ("DisruptionExceeded", False)
    assert await asked.rollback(["reboot"], Hold("", no_reboot=True, requester="root")) == "old"
    request = host.world.request
    assert request is not None
    assert (request.no_reboot, request.requester, bool(request.avoid)) == (True, "root", True)


async def test_rollback_of_what_ended_half_way_goes_to_the_current_config() -> None:
    host = await at_old()
    host.want(KARGS)
    await host.settle()
    host.limits = replace(host.limits, revert=False)
    host.world.faults.append(Fault("kernel arguments", times=None))
    host.want(on("b", "failed", kernel_arguments=("debug",)))
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "DeploymentWrong")
    failed = host.record.to_digest
    host.world.repair("kernel arguments")
    assert await api(host, Phase.DEGRADED).rollback() == "kargs"
    assert host.world.request is not None
    assert host.world.request.avoid == failed
    host.want(KARGS)
    await host.settle()
    assert (host.phase, booted_digest(host.world), host.world.holder) == (Phase.IDLE, A_DIGEST, None)


async def test_rollback_is_refused_without_a_config_before_and_in_an_update() -> None:
    host = await at_old()
    with pytest.raises(Refused, match="no config before") as no_previous:
        await api(host).rollback()
    assert no_previous.value.reason == "NoPrevious"
    with pytest.raises(Refused) as under_way:
        await api(host, Phase.STAGING).rollback()
    assert under_way.value.reason == "UpdateUnderWay"
    assert DESIRED not in host.world.disk


async def test_rollback_is_refused_while_an_update_waits_for_a_service_of_the_host() -> None:
    host = await at_old()
    host.world.record = {**host.world.record, "phase": str(Phase.ACTING), "leg": {"type": "Apply"}}
    with pytest.raises(Refused) as caught:
        await api(host, Phase.DEGRADED).rollback()
    assert caught.value.reason == "UpdateUnderWay"


async def test_rollback_to_what_would_be_refused_changes_nothing() -> None:
    host = await at_old()
    host.want(NEW)
    await host.settle()
    host.world.faults.append(Fault("guard", Refused("zincati", reason=Reason.OTHER_DRIVER), times=None))
    with pytest.raises(Refused, match="zincati"):
        await api(host).rollback()
    assert DESIRED not in host.world.disk


async def test_verify_reports_drift_of_the_os_too() -> None:
    host = await at_old()
    assert json.loads(await api(host).verify())["ok"]
    host.want(NEW)
    await host.settle()
    host.world.deployments.reverse()
    host.world.power_cut()
    drift = json.loads(await api(host).verify())["drift"]
    assert [one["entry"] for one in drift] == ["osImageURL:osImageURL"]


@pytest.mark.finding(
    "OS: fields without a back end", "A field of the OS that was not compared is never reported as matching."
)
@pytest.mark.finding(
    "users: diffs of a verification", "`verify --diff` shows what was changed in files and units, no secret."
)
async def test_verify_shows_what_was_changed() -> None:
    host = await at_old()
    digest = host.add(config("files", {"/etc/a": "one\nsame\n", "/etc/b": "b", "/etc/same": "same"}))
    host.want(host.configs[digest])
    await host.settle()
    host.world.disk["/etc/a"] = RegularFile(b"two\nsame\npassword=hunter2hunter2\n")
    del host.world.disk["/etc/b"]
    found = {each["entry"]: each for each in json.loads(await api(host).verify(diff=True))["drift"]}
    assert found["file:/etc/a"]["diff"].splitlines()[3:6] == ["-one", "+two", " same"]
    assert "hunter2" not in found["file:/etc/a"]["diff"]
    assert "+++ /dev/null" in found["file:/etc/b"]["diff"]
    assert "file:/etc/same" not in found
    assert all("diff" not in each for each in json.loads(await api(host).verify())["drift"])


async def test_verify_names_what_it_could_not_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: FakeDeployments) -> list[object]:
        raise Unreconcilable("bootc only", reason=Reason.NO_DEPLOYMENTS)

    host = await at_old(on("a", "with arguments", {"/etc/quiet/q": "1"}))
    monkeypatch.setattr(FakeDeployments, "list", fail)
    found = json.loads(await api(host).verify())
    assert (found["ok"], found["drift"]) == (
        False,
        [{"entry": "osImageURL:osImageURL", "why": "was not compared: bootc only"}],
    )


@pytest.mark.finding(
    "OS: fields without a back end", "A field of the OS that was not compared is never reported as matching."
)
async def test_verify_names_an_image_without_a_digest() -> None:
    host = await at_old(config("tagged", {"/etc/quiet/q": "1"}, os_image_url="quay.example/os:latest"))
    found = json.loads(await api(host).verify())
    assert (found["ok"], [each["entry"] for each in found["not_compared"]]) == (True, ["osImageURL:osImageURL"])


async def test_a_config_without_an_os_is_verified_without_asking_for_one() -> None:
    host = await at_old(config("plain", {"/etc/quiet/q": "1"}))
    asked = api(host)
    host.world.faults.append(Fault("list deployments", lost_answer(), times=100))
    assert json.loads(await asked.verify())["ok"]


async def test_plan_is_what_apply_would_do_and_changes_nothing() -> None:
    host = await at_old()
    before, disk = host.record, dict(host.world.disk)
    digest = host.add(NEW)
    answer = json.loads(await api(host).plan(digest))
    assert (answer["schema"], answer["from"], answer["to"]) == ("nodeagent/plan/v1", "old", "new")
    assert (host.record, host.world.disk, host.world.request) == (before, disk, None)
    host.want(NEW)
    await host.settle()
    assert host.world.history[-1].disruption == answer["disruption"]


async def test_a_plan_has_values_and_the_drift_of_the_host() -> None:
    """Each difference has its own outcome: the new config changes b and c, and has the present content of d."""
    files = {path: f"{path} = old\n" for path in ("/etc/a", "/etc/b", "/etc/d")}
    host = Host(on_drift="report")
    host.want(config("old", files=files))
    await host.settle()
    for path in (*files, "/etc/c"):
        host.world.disk[path] = RegularFile(b"/etc/d = new\ntoken = hunter2\n", 0o644)
    changed = {**files, "/etc/b": "/etc/b = new\n", "/etc/c": "x\n", "/etc/d": "/etc/d = new\ntoken = hunter2\n"}
    digest = host.add(config("new", files=changed))
    answer = json.loads(await api(host).plan(digest))
    assert {found["entry"]: found["then"] for found in answer["drift"]} == {
        "file:/etc/a": "kept",
        "file:/etc/b": "overwritten",
        "file:/etc/d": "wanted",
    }
    assert answer["drifted"] == ["file:/etc/a"]
    details = {change["key"]: change["details"] for change in answer["changes"]}
    both = [{"what": "content", "added": 1, "removed": 2}, {"what": "replaces", "after": "a file of the host"}]
    assert details == {"/etc/b": both, "/etc/c": both}
    assert not any("diff" in change for change in answer["changes"])
    answer = json.loads(await api(host).plan(digest, diff=True))
    diff = {change["key"]: change["diff"] for change in answer["changes"]}
    assert "-token = [redacted]\n+x\n" in diff["/etc/c"]
    assert "hunter2" not in json.dumps(answer)


async def test_a_plan_has_the_changes_of_an_os_that_is_staged_already() -> None:
    host = await at_old()
    digest = host.add(NEW)
    assert "os" not in json.loads(await api(host).plan(digest))
    left = Deployment("os-bbbb.7", "b", "os", digest=B_DIGEST, staged=True, locked=True)
    host.world.deployments.insert(0, replace(left, kernel_arguments=host.world.deployments[0].kernel_arguments))
    found = json.loads(await api(host).plan(digest))["os"]
    assert (found["staged"], found["merged"], found["summary"]) == ("os-bbbb.7", [], "kernel arguments same")


async def test_lines_of_a_file_that_not_all_may_read_are_not_counted_for_all() -> None:
    host = await at_old()
    host.world.disk["/etc/secret"] = RegularFile(b"one\n", 0o600)
    digest = host.add(config("new", files={"/etc/secret": "two\n"}))
    for private, content in ((False, {"what": "content"}), (True, {"what": "content", "added": 1, "removed": 1})):
        answer = json.loads(await api(host).plan(digest, private=private))
        assert next(c for c in answer["changes"] if c["key"] == "/etc/secret")["details"][0] == content


@pytest.mark.finding(
    "plans: for this host", "`plan FILE` shows what a config does to this host, with the checks of `apply`."
)
async def test_plan_is_refused_as_apply_is() -> None:
    host = await at_old()
    digest = host.add(config("tagged", os_image_url="quay.example/os:latest"))
    refused = []
    for call in (api(host).plan, api(host).apply):
        with pytest.raises(AgentError) as caught:
            await call(digest)
        refused.append(caught.value.reason)
    assert refused == ["ImageNotPinned"] * 2


async def test_plan_needs_a_host_at_rest() -> None:
    host = await at_old()
    digest = host.add(NEW)
    asked = api(host, Phase.STAGING)
    for call in (asked.plan(digest), asked.apply(digest, ["reboot"])):
        with pytest.raises(Refused) as caught:
            await call
        assert caught.value.reason == "UpdateUnderWay"


@pytest.mark.finding(
    "users: units that exist nowhere", "A strict apply rejects a unit that exists nowhere, and changes nothing."
)
async def test_a_strict_apply_rejects_units_from_nowhere() -> None:
    host = await at_old()
    digest = host.add(on("a", "typo", units=[UnitEntry("ap.service", enabled=True)]))
    with pytest.raises(InvalidInput) as caught:
        await api(host).apply(digest, strict=True)
    assert caught.value.reason == "UnitMissing"
    assert "did you mean app.service?" in caught.value.problems[0].message
    assert DESIRED not in host.world.disk
    plan = json.loads(await api(host).plan(digest))
    assert [each["entry"] for each in plan["unit_warnings"]] == ["unit:ap.service"]
    assert plan["disruption"] == "none"
    assert await api(host).apply(digest) == digest
    host.want(host.configs[digest])
    await host.settle()
    found = json.loads(await api(host).verify())
    assert (found["ok"], [each["entry"] for each in found["not_compared"]]) == (True, ["unit:ap.service"])


async def test_apply_refuses_more_disruption_than_allowed() -> None:
    host = await at_old()
    digest = host.add(on("b", "image"))
    with pytest.raises(Refused) as caught:
        await api(host).apply(digest, ["drain"])
    assert caught.value.reason == "DisruptionExceeded"
    assert [problem.path for problem in caught.value.problems] == ["osImageURL:osImageURL"]
    assert DESIRED not in host.world.disk
    assert await api(host).apply(digest, ["reboot"]) == digest
    assert DESIRED in host.world.disk


async def test_configs_of_the_host() -> None:
    host = await at_old()
    with pytest.raises(InvalidInput) as unknown:
        await api(host).config("named", "nowhere", secrets=False)
    assert unknown.value.reason == Reason.UNKNOWN_CONFIG
    host.world.current = ""
    with pytest.raises(Refused) as refused:
        await api(host).config("current", "", secrets=False)
    assert refused.value.reason == Reason.NO_CURRENT_CONFIG
