# SPDX-License-Identifier: Apache-2.0
"""Changes that a config makes to the agent that applies it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.agent.own_config import HostPolicy, OwnConfig
from nodeagent.agent.report.report import Report
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.core.plan.change import ChangeKind
from nodeagent.core.plan.plan import Change
from nodeagent.core.plan.policy import DAEMON_RELOAD, MAX_DROP_INS, Entry, Policy, match, restart
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.domains import default_policy
from nodeagent.errors import InvalidInput, Problem
from nodeagent.report.status import Status
from nodeagent.settings.schema import Settings
from nodeagent.update.states import Phase
from tests.world import FakeUnit, World
from tests.world.run import POLICY, Host, config

CONFIG_D = "/etc/nodeagent/config.d"


def having(files: dict[str, str]) -> MachineConfig:
    return MachineConfig("x", files={path: FileEntry(path, text.encode()) for path, text in files.items()})


class TestSettings:
    @pytest.fixture(autouse=True)
    def host(self, tmp_path: Path) -> None:
        self.vendor, self.admin = tmp_path / "usr", tmp_path / "etc"
        for directory in (self.vendor, self.admin):
            directory.mkdir()
        (self.admin / "10-site.yaml").write_text("cluster: {kubeconfig: /etc/k}\n")

    async def refused(self, old: dict[str, str], new: dict[str, str], **settings: str) -> list[Problem]:
        checker = OwnConfig(Settings(**settings), [self.vendor, self.admin])
        return list(await checker.check(having(old), having(new)))

    @pytest.mark.finding(
        "daemon: a start with damaged files",
        "Settings that a config brings are merged with those of the host and checked before the first write.",
    )
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("rebot: {allow: false}\n", "unknown key rebot"),
            ("reboot: {allow: 5}\n", "true or false"),
            ("a: [\n", "expected the node content"),
            ("cluster: {service_account: /s}\n", "not both"),
            ("state_dir: /elsewhere\n", "state_dir cannot be changed"),
            ("desired_config: /elsewhere\n", "desired_config cannot be changed"),
        ],
    )
    async def test_settings_that_would_not_load_are_refused(self, text: str, words: str) -> None:
        path = f"{CONFIG_D}/60-bad.yaml"
        (problem,) = await self.refused({}, {path: text})
        assert words in problem.message
        assert problem.path.startswith(CONFIG_D)
        assert await self.refused({path: text}, {path: text}) == []

    async def test_only_what_the_agent_reads_is_merged(self) -> None:
        for name in ("60-x.yml", ".60-x.yaml", "sub/60-x.yaml"):
            assert await self.refused({}, {f"{CONFIG_D}/{name}": "rebot: 1"}) == []

    async def test_what_is_merged_is_what_will_be_there(self) -> None:
        other = "cluster: {service_account: /s}\n"
        takes_the_cluster_away = {f"{CONFIG_D}/10-site.yaml": "log: {level: debug}\n", f"{CONFIG_D}/20-l.yaml": other}
        assert await self.refused({}, takes_the_cluster_away) == []
        (self.vendor / "10-site.yaml").write_text("cluster: {kubeconfig: /etc/k, service_account: /s}\n")
        (problem,) = await self.refused({f"{CONFIG_D}/10-site.yaml": "x"}, {f"{CONFIG_D}/30-x.yaml": "log: {}\n"})
        assert "not both" in problem.message

    async def test_a_fragment_of_the_host_that_is_invalid_is_no_doing_of_the_config(self) -> None:
        (self.admin / "50-bad.yaml").write_text("rebot: 1\n")
        assert await self.refused({}, {f"{CONFIG_D}/60-x.yaml": "log: {level: debug}\n"}) == []
        assert await self.refused({}, {f"{CONFIG_D}/50-bad.yaml": "log: {level: debug}\n"}) == []

    @pytest.mark.parametrize("path", ["/etc/nodeagent/policy.yaml", "/etc/nodeagent/policy.d/10-site.yaml"])
    async def test_a_policy_that_does_not_parse_is_refused(self, path: str) -> None:
        (problem,) = await self.refused({}, {path: "files: 5"})
        assert "must be a list" in problem.message
        assert await self.refused({path: "files: 5"}, {path: "files: 5"}) == []
        assert await self.refused({}, {path: "files: []"}) == []


class Notes(dict[str, str]):
    async def note(self, key: str) -> str:
        return self.get(key, "")

    async def keep_note(self, key: str, text: str) -> None:
        self[key] = text


class TestPolicy:
    @pytest.fixture(autouse=True)
    def host(self, tmp_path: Path) -> None:
        self.path, self.notes, self.report = tmp_path / "policy.yaml", Notes(), Report(Status())
        self.policy = HostPolicy(self.notes, self.report, lambda: Settings(policy=str(self.path)))

    def write(self, text: str) -> None:
        self.path.write_text(text)
        self.path.chmod(0o600)

    async def verb(self, old: dict[str, str], new: dict[str, str]) -> str:
        policy = await self.policy(having(old), having(new))
        found = match(policy, Change("file", "/etc/x", ChangeKind.MODIFIED))
        return str(found.entry.actions[0].type) if found else ""

    @pytest.mark.finding(
        "policy: invalid files",
        "A policy is validated before it is written, and the plan uses the one that the config brings.",
    )
    async def test_the_policy_that_the_config_brings_counts(self) -> None:
        self.write("files: [{path: /etc/x, actions: [{type: Reboot}]}]")
        brought = {str(self.path): "files: [{path: /etc/x, actions: [{type: None}]}]"}
        assert await self.verb({}, {}) == "Reboot"
        assert await self.verb({}, brought) == "None"

    @pytest.mark.finding(
        "policy: invalid files", "An invalid policy of the host is put right by a config and by a rollback."
    )
    async def test_an_invalid_one_is_put_right_by_a_config(self) -> None:
        bad, good = {str(self.path): "files: 5"}, {str(self.path): "files: [{path: /etc/x, actions: [{type: None}]}]"}
        self.write("files: 5")
        assert await self.verb(bad, good) == "None"
        assert self.report.status.problems == ()
        assert await self.verb(bad, {}) == ""  # as a rollback to a config without one: the built-in policy
        (problem,) = self.report.status.problems
        assert (problem.topic, problem.reason) == ("policy", "PolicyInvalid")
        with pytest.raises(InvalidInput):
            await self.verb({}, {})

    async def test_the_last_valid_one_is_used_while_that_of_the_host_is_not(self) -> None:
        self.write("files: [{path: /etc/x, actions: [{type: None}]}]")
        assert await self.verb({}, {}) == "None"
        self.write("files: 5")
        assert await self.verb({}, {}) == "None"
        assert [problem.topic for problem in self.report.status.problems] == ["policy"]
        self.write("files: []")
        assert await self.verb({}, {}) == ""
        assert self.report.status.problems == ()

    def drop_in(self, name: str, text: str) -> Path:
        path = self.path.with_name("policy.d") / name
        path.parent.mkdir(mode=0o755, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        return path

    async def test_drop_ins_in_the_order_of_their_names(self) -> None:
        self.write("files: []")
        self.drop_in("20-b.yaml", "files: [{path: /etc/x, actions: [{type: Reboot}]}]")
        assert await self.verb({}, {}) == "Reboot"
        self.drop_in("10-a.yaml", "files: [{path: /etc/x, actions: [{type: None}]}]")
        for ignored in (".30-c.yaml", "30-c.yaml~", "30-c.yml"):
            self.drop_in(ignored, "files: 5")
        self.write("files: [{path: /etc/x, actions: [{type: None}]}]")
        assert await self.verb({}, {}) == "Reboot"
        last = self.drop_in("30-c.yaml", "files: [{path: /etc/x, actions: [{type: DaemonReload}]}]")
        assert await self.verb({}, {}) == "DaemonReload"
        assert await self.verb({}, {str(last): "files: [{path: /etc/x, actions: [{type: Drain}]}]"}) == "Drain"

    async def test_of_drop_ins_only_the_invalid_one_is_replaced_by_its_last_valid_content(self) -> None:
        self.write("files: []")
        first = self.drop_in("10-a.yaml", "files: [{path: /etc/x, actions: [{type: None}]}]")
        assert await self.verb({}, {}) == "None"
        first.write_text("files: 5")
        assert await self.verb({}, {}) == "None"
        second = self.drop_in("20-b.yaml", "files: [{path: /etc/x, actions: [{type: Reboot}]}]")
        assert await self.verb({}, {}) == "Reboot"
        second.write_text("files: 5")
        with pytest.raises(InvalidInput):
            await self.verb({}, {})
        # A config that removes it, or replaces it.
        assert await self.verb({str(second): "files: 5"}, {}) == "None"
        good = {str(second): "files: [{path: /etc/x, actions: [{type: Drain}]}]"}
        assert await self.verb({}, good) == "Drain"
        assert [problem.topic for problem in self.report.status.problems] == ["policy"]
        first.unlink()
        second.unlink()
        assert await self.verb({}, {}) == ""
        assert self.report.status.problems == ()

    async def test_a_directory_that_others_can_write_to(self) -> None:
        self.write("files: []")
        directory = self.drop_in("10-a.yaml", "files: [{path: /etc/x, actions: [{type: None}]}]").parent
        assert await self.verb({}, {}) == "None"
        directory.chmod(0o777)
        assert await self.verb({}, {}) == "None"
        (problem,) = self.report.status.problems
        assert (problem.topic, problem.reason) == ("policy", "UnsafeConfig")
        await self.notes.keep_note("policy", "")
        with pytest.raises(InvalidInput):
            await self.verb({}, {})

    async def test_too_many_drop_ins(self) -> None:
        self.write("files: []")
        for number in range(MAX_DROP_INS + 1):
            self.drop_in(f"{number}.yaml", "files: []")
        with pytest.raises(InvalidInput) as caught:
            await self.verb({}, {})
        assert caught.value.reason == "TooLarge"

    async def test_a_note_of_an_earlier_version_is_left_out(self) -> None:
        self.write("files: 5")
        for text in ("files: []\n", '{"files": []}', "[]", "["):
            await self.notes.keep_note("policy", text)
            with pytest.raises(InvalidInput):
                await self.verb({}, {})


RECOMMENDED = Path(__file__).parents[2] / "systemd/usr/lib/nodeagent/policy-recommended.yaml"


class TestRecommended:
    """Entries below those of the admin, with a setting only."""

    @pytest.fixture(autouse=True)
    def host(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.path = tmp_path / "recommended.yaml", tmp_path / "policy.yaml"
        self.file.write_bytes(RECOMMENDED.read_bytes())
        self.write("files: []")
        for module in ("nodeagent.host.policy_files", "nodeagent.core.plan.policy", "nodeagent.agent.own_config"):
            monkeypatch.setattr(f"{module}.RECOMMENDED", str(self.file))

    def write(self, text: str) -> None:
        for path in (self.path, self.file):
            path.touch()
            path.chmod(0o600)
        self.path.write_text(text)

    async def actions(self, path: str, *, recommended: bool) -> str:
        settings = Settings(policy=str(self.path), recommended_policy=recommended)
        policy = await HostPolicy(Notes(), Report(Status()), lambda: settings)(having({}), having({}))
        found = match(policy, Change("file", path, ChangeKind.MODIFIED))
        return " ".join(str(action.type) for action in found.entry.actions) if found else ""

    async def test_the_plan_can_name_their_source(self) -> None:
        settings = Settings(policy=str(self.path), recommended_policy=True)
        self.write("files: [{path: /etc/mine, actions: [{type: None}]}]")
        policy = await HostPolicy(Notes(), Report(Status()), lambda: settings)(having({}), having({}))
        entries = {**policy.files, **policy.patterns, **policy.units}
        sources = {str(entry.source): key for key, entry in entries.items()}
        assert {*sources} == {"default", "recommended", "user"}
        assert sources["user"] == "/etc/mine"
        assert policy.files["/etc/chrony.conf"].source == "recommended"
        assert policy.patterns["/etc/ssh/sshd_config.d/*.conf"].source == "recommended"

    async def test_only_with_the_setting(self) -> None:
        assert await self.actions("/etc/chrony.conf", recommended=False) == ""
        assert await self.actions("/etc/chrony.conf", recommended=True) == "Restart"
        assert await self.actions("/etc/ssh/sshd_config.d/a.conf", recommended=True) == "Reload"
        assert await self.actions("/etc/NetworkManager/a.conf", recommended=True) == ""

    async def test_a_rule_decides_instead_of_the_actions(self) -> None:
        settings = Settings(policy=str(self.path), recommended_policy=True)
        policy = await HostPolicy(Notes(), Report(Status()), lambda: settings)(having({}), having({}))
        assert policy.files["/etc/sysctl.d"].rule is not None
        self.write("files: [{path: /etc/sysctl.d, actions: [{type: None}]}]")
        policy = await HostPolicy(Notes(), Report(Status()), lambda: settings)(having({}), having({}))
        assert policy.files["/etc/sysctl.d"].rule is None

    async def test_an_entry_of_the_admin_replaces_one(self) -> None:
        self.write("files: [{path: /etc/ssh/sshd_config.d/*.conf, actions: [{type: Reboot}]}]")
        assert await self.actions("/etc/ssh/sshd_config.d/a.conf", recommended=True) == "Reboot"

    async def test_it_is_missing(self) -> None:
        self.file.unlink()
        with pytest.raises(InvalidInput) as caught:
            await self.actions("/etc/x", recommended=True)
        assert caught.value.reason == "NoPolicy"

    def test_no_built_in_entry_is_replaced(self) -> None:
        policy = parse_policy(RECOMMENDED.read_bytes())
        for path in (*policy.files, *policy.patterns):
            assert match(default_policy(), Change("file", path.replace("*", "a"), ChangeKind.MODIFIED)) is None


class OwnPolicy(Host):
    async def _policy(self, *_: MachineConfig) -> Policy:
        actions = (DAEMON_RELOAD, restart("app.service"), restart("nodeagent.service"))
        return replace(POLICY, files={"/etc/self": Entry("/etc/self", actions)})


@pytest.mark.finding(
    "daemon: actions on its own unit", "An action on our own unit comes once, after the update is closed."
)
@pytest.mark.looptime
async def test_an_action_on_our_own_unit_comes_once_after_the_update() -> None:
    host = OwnPolicy(World(units={"app.service": FakeUnit(), "nodeagent.service": FakeUnit()}))
    host.want(config("old"))
    await host.settle()
    host.want(config("new", {"/etc/self": "1"}))
    await host.settle()
    assert [(type(step).__name__, phase) for step, phase in host.renewed] == [("RestartUnit", Phase.IDLE)]
    assert not any("nodeagent.service" in action for action in host.actions())
    assert (host.phase, host.world.holder) == (Phase.IDLE, None)
    host.want(config("newer", {"/etc/self": "2"}))
    host.world.units["app.service"].fail_restarts = 9
    host.limits = replace(host.limits, may_reboot=False)
    await host.settle()
    assert len(host.renewed) == 1  # an update that was taken back asks for nothing
