# SPDX-License-Identifier: Apache-2.0
"""CRI-O by key: its own document, one row for each kind of action, and what it would read by accident."""

from __future__ import annotations

import pytest

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.core.plan.change import KeyChange
from nodeagent.core.plan.domain import UnitFailure
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.program import ProgramResult
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.domains import curable, default_policy, domain_of, reload_proof_of, validate, warnings
from nodeagent.domains.crio import AT_START, DOMAIN, RELOADED, RESTARTED

MAIN = "/etc/crio/crio.conf"
A, B = "/etc/crio/crio.conf.d/00-default", "/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit"


def config(**files: str) -> MachineConfig:
    paths = {"main": MAIN, "a": A, "b": B}
    found = {paths[name]: FileEntry(paths[name], text.encode()) for name, text in files.items()}
    return MachineConfig("x", files=found)


def changes(old: MachineConfig, new: MachineConfig, **host: str) -> list[KeyChange]:
    paths = {"main": MAIN, "a": A, "b": B}
    view = HostView({paths[name]: text.encode() for name, text in host.items()})
    return list(DOMAIN.changes(Sides(old, new, view)))


def actions(old: MachineConfig, new: MachineConfig) -> list[str]:
    return [f"{action.type} {action.unit}".strip() for action in make_plan(old, new, default_policy()).actions]


RELOAD, RESTART, STRONGEST, NONE = ["Reload crio.service"], ["Restart crio.service"], ["Drain", "Reboot"], ["None"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        *[(f"crio.{name.rstrip('.')}", RELOAD) for name in RELOADED],
        *[(f"crio.{name.rstrip('.')}", RESTART) for name in RESTARTED],
        *[(f"crio.{name}", NONE) for name in AT_START],
        ("crio.runtime.runtimes.crun", RELOAD),
        ("crio.metrics.enable_metrics", RESTART),
        ("crio.runtime.cgroup_manager", STRONGEST),
        ("crio.storage_driver", STRONGEST),
        ("crio.root", STRONGEST),
        ("crio.api.listen", STRONGEST),
        ("crio.runtime.pids_limits", STRONGEST),
        ("crio.runtime.log_level_of_another_version", STRONGEST),
        ("crio.unknown", STRONGEST),
        ("runtime.log_level", NONE),
    ],
)
def test_each_key_has_its_actions(key: str, expected: list[str]) -> None:
    table, _, name = key.rpartition(".")
    assert actions(config(a=f"[{table}]\n{name} = 1\n"), config(a=f"[{table}]\n{name} = 2\n")) == expected


@pytest.mark.finding(
    "domains: unknown keys of CRI-O", "A key of CRI-O in no list takes a reboot, and the plan says why."
)
@pytest.mark.parametrize("key", ["runtime.pids_limits", "unknown", "another.table.key", "api.listen"])
def test_the_effect_of_an_unlisted_key_is_unknown(key: str) -> None:
    table, _, name = f"crio.{key}".rpartition(".")
    old, new = (config(a=f"[{table}]\n{name} = {value}\n") for value in (1, 2))
    for before, after in ((old, new), (config(), new), (new, config())):
        (planned,) = make_plan(before, after, default_policy()).changes
        (found,) = planned.keys
        assert (found.key, found.why) == (f"crio.{key}", "its effect is unknown")
        assert [action.type for action in planned.actions] == STRONGEST


def test_the_strongest_key_of_all_files_counts() -> None:
    old = config(main='[crio.runtime]\nlog_level = "info"\n', a="[crio.runtime]\npids_limit = 0\n")
    new = config(main='[crio.runtime]\nlog_level = "debug"\n', a="[crio.runtime]\npids_limit = 10\n")
    assert actions(old, new) == RESTART, "the restart takes the reload over"


def test_a_key_that_another_file_overrides_is_no_change() -> None:
    later = '[crio.runtime]\nlog_level = "warn"\n'
    old, new = (config(a=f'[crio.runtime]\nlog_level = "{level}"\n', b=later) for level in ("info", "debug"))
    assert changes(old, new) == []
    assert actions(old, new) == NONE
    files = [config(a=f'[crio.runtime]\nlog_level = "{level}"\n') for level in ("info", "debug")]
    assert changes(*files, b=later) == [], "nor one of a file that no config manages"
    (found,) = changes(*files, main=later)
    assert (found.document, found.key, found.before, found.after) == (A, "crio.runtime.log_level", '"info"', '"debug"')


def test_a_file_that_goes_brings_the_earlier_value_back() -> None:
    (found,) = changes(
        config(a="[crio.runtime]\npids_limit = 1\n", b="[crio.runtime]\npids_limit = 2\n"),
        config(a="[crio.runtime]\npids_limit = 1\n"),
    )
    assert (found.document, found.before, found.after) == (B, "2", "1")


def test_a_handler_is_replaced_as_a_whole() -> None:
    first = '[crio.runtime.runtimes.crun]\nruntime_path = "/usr/bin/crun"\nruntime_root = "/run/crun"\n'
    second = '[crio.runtime.runtimes.crun]\nruntime_path = "/opt/crun"\n'
    path, root = changes(config(a=first), config(a=first, b=second))
    assert (path.key, path.after) == ("crio.runtime.runtimes.crun.runtime_path", '"/opt/crun"')
    assert (root.key, root.after) == ("crio.runtime.runtimes.crun.runtime_root", "")


def test_text_without_a_meaning_is_no_change() -> None:
    old = config(a="[crio.runtime]\npids_limit = 1 # one\n")
    assert actions(old, config(a="# one\n[crio]\nruntime = {pids_limit = 1}\n")) == NONE


def test_a_secret_is_not_shown() -> None:
    old, new = (config(a=f'[crio.image]\nglobal_auth_file = "/{name}"\n') for name in "ab")
    (found,) = changes(old, new)
    assert (found.before, found.after) == ("(not shown)", "(not shown)")


@pytest.mark.parametrize(
    "text", ["[crio\npass = 'hunter2'", f"[crio]\nhunter2 = {'9' * 5000}"], ids=["table", "number"]
)
def test_a_file_that_is_no_toml(text: str) -> None:
    bad, good = config(a=text), config(a="")
    (problem,) = DOMAIN.validate(Sides(good, bad), {A: bad.files[A].content})
    assert problem.path == A
    assert "hunter2" not in problem.message
    assert validate(good, bad) == (problem,)
    assert actions(bad, good) == STRONGEST, "what it ran with is not known"


def test_files_that_are_read_by_accident_are_named() -> None:
    host = HostView(
        {f"{A}.bak": b"", f"{A}~": b"", "/etc/crio/crio.conf.d/.a.swp": b"", B: b"", "/etc/crio/x.bak": b""}
    )
    found = warnings(config(a=""), config(a=""), host)
    assert [problem.path for problem in found] == ["/etc/crio/crio.conf.d/.a.swp", f"{A}.bak", f"{A}~"]


UNIT = {
    "/usr/lib/systemd/system/crio.service": b"[Service]\nEnvironmentFile=-/etc/sysconfig/crio\nExecStart=crio $OPTIONS",
    "/etc/sysconfig/crio": b'OPTIONS="--log-level debug --enable-metrics=true --pause-image=x"\n',
}


@pytest.mark.parametrize(
    ("key", "named"), [("runtime.log_filter", True), ("runtime.pids_limit", False), ("internal_wipe", False)]
)
def test_a_reload_that_drops_flags_of_the_unit_is_named(key: str, named: bool) -> None:
    table, _, name = f"crio.{key}".rpartition(".")
    old, new = (config(a=f"[{table}]\n{name} = {value}\n") for value in (1, 2))
    found = [(problem.path, problem.message) for problem in warnings(old, new, HostView(UNIT))]
    text = "loses --log-level, --pause-image of its command line with a reload, until its next start"
    assert found == ([("crio.service", text)] if named else [])
    assert warnings(old, new, HostView()) == ()
    assert set(UNIT) <= set(DOMAIN.reads(Sides(old, new, HostView(UNIT))))


def test_the_installed_program_judges_the_whole_tree() -> None:
    sides = Sides(config(a="x = 1"), config(a="x = 2"), HostView({B: b"y = 1"}))
    (check,) = DOMAIN.programs(sides)
    assert check.tree == {MAIN: b"", A: b"x = 2", B: b"y = 1"}
    assert check.control is not None
    assert check.control.tree[A] == b"x = 1"
    assert list(check.judge(ProgramResult(0, ["[crio]"]))) == []
    (problem,) = check.judge(ProgramResult(1, ["noise", 'level=fatal msg="invalid log level"']))
    assert "invalid log level" in problem.message
    assert DOMAIN.programs(Sides(config(a="x = 1"), config(a="x = 1"))) == ()


def test_a_reboot_does_not_mend_a_bad_configuration() -> None:
    key = KeyChange(A, "crio.runtime.pids_limit", "1", "2", ())
    assert not curable(UnitFailure("crio.service", "exit-code", (key,)))
    assert curable(UnitFailure("crio.service", "exit-code"))
    assert curable(UnitFailure("web.service", "exit-code", (key,)))


def test_what_a_reload_says() -> None:
    assert reload_proof_of("crio.service") is not None
    assert reload_proof_of("web.service") is None
    assert domain_of(A) is DOMAIN


def test_a_key_that_counts_from_the_next_start_names_the_unit() -> None:
    old, new = (config(a=f"[crio]\ninternal_wipe = {value}\n[other]\nx = {value}\n") for value in ("true", "false"))
    assert {key.key: key.next_start for key in changes(old, new)} == {
        "crio.internal_wipe": "crio.service",
        "other.x": "",
    }
