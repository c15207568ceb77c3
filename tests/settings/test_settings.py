# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.errors import InvalidInput
from nodeagent.settings.check import Value, check_values
from nodeagent.settings.load import find, load, merge, read
from nodeagent.settings.schema import Settings, flatten, keys


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    """Directories from the weakest to the strongest, like /usr, /run and /etc."""
    made = [tmp_path / name for name in ("usr", "run", "etc")]
    for directory in made:
        directory.mkdir()
    return made


def problems(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "50-x.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        load([tmp_path])
    assert caught.value.reason == "SettingsInvalid"
    return [f"{p.path.removeprefix(str(tmp_path))}: {p.message}" for p in caught.value.problems]


def test_without_files_all_is_default(tmp_path: Path) -> None:
    loaded = load([tmp_path / "missing", tmp_path])
    assert loaded.files == ()
    assert loaded.origins == {}
    assert flatten(loaded.settings) == {**flatten(Settings()), "node_name": os.uname().nodename.lower()}


def test_the_last_name_wins_key_by_key(dirs: list[Path]) -> None:
    (dirs[0] / "50-a.yaml").write_text("actions:\n  timeout: 1\n  settle: 2\nnode_name: a\n")
    (dirs[0] / "60-b.yaml").write_text("actions: {timeout: 3}\n")
    loaded = load(dirs)
    assert (loaded.settings.actions.timeout, loaded.settings.actions.settle) == (3, 2)
    assert loaded.origins["actions.timeout"] == f"{dirs[0]}/60-b.yaml:1"
    assert loaded.origins["actions.settle"] == f"{dirs[0]}/50-a.yaml:3"
    assert loaded.settings.node_name == "a"


def test_the_name_orders_not_the_directory(dirs: list[Path]) -> None:
    (dirs[2] / "10-etc.yaml").write_text("on_failure: degraded\n")
    (dirs[0] / "20-usr.yaml").write_text("on_failure: revert\n")
    assert load(dirs).settings.on_failure == "revert"


def test_a_file_of_the_same_name_replaces_all_of_the_weaker(dirs: list[Path]) -> None:
    (dirs[0] / "50-a.yaml").write_text("on_failure: degraded\non_drift: repair\n")
    (dirs[1] / "50-a.yaml").write_text("on_failure: degraded\n")
    loaded = load(dirs)
    assert (loaded.settings.on_failure, loaded.settings.on_drift) == ("degraded", "report")


def test_a_link_to_dev_null_masks(dirs: list[Path]) -> None:
    (dirs[0] / "50-a.yaml").write_text("on_failure: degraded\n")
    (dirs[2] / "50-a.yaml").symlink_to("/dev/null")
    assert find(dirs) == []
    assert load(dirs).settings.on_failure == "revert"


def test_other_links_are_followed_and_other_files_left_alone(dirs: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("on_drift: repair\n")
    (dirs[2] / "50-a.yaml").symlink_to(target)
    for name in ("README", ".hidden.yaml", "a.yaml~", "a.yaml.rpmsave"):
        (dirs[2] / name).write_text("nonsense")
    assert load(dirs).settings.on_drift == "repair"


TABLE = [
    ("reboot: {alow: 1}", "/50-x.yaml:1: unknown key reboot.alow; did you mean reboot.allow?"),
    ("reboots:\n  allow: true", "/50-x.yaml:1: unknown key reboots; did you mean reboot?"),
    (
        "\ninhibitor_override: true",
        "/50-x.yaml:2: unknown key inhibitor_override; did you mean reboot.inhibitor_override?",
    ),
    ("actions: 120", "/50-x.yaml:1: actions is a group: its keys go below it, indented"),
    ("actions: {timeout: 0}", "/50-x.yaml:1: actions.timeout must be a number of seconds from 1 to 3600"),
    ("actions: {timeout: 2m}", "/50-x.yaml:1: actions.timeout must be a number of seconds from 1 to 3600; 2m is 120"),
    ("actions: {timeout: yes}", "/50-x.yaml:1: actions.timeout must be a number of seconds from 1 to 3600"),
    ("actions: {timeout: .nan}", "/50-x.yaml:1: actions.timeout must be a number of seconds from 1 to 3600"),
    ("actions: {settle: .inf}", "/50-x.yaml:1: actions.settle must be a number of seconds from 0 to 300"),
    ("reboot: {allow: 1}", "/50-x.yaml:1: reboot.allow must be true or false"),
    ("on_failure: panic", "/50-x.yaml:1: on_failure must be one of revert, degraded"),
    ("on_failure:", "/50-x.yaml:1: on_failure must be one of revert, degraded"),
    ("state_dir: var/lib", "/50-x.yaml:1: state_dir must be an absolute path"),
    ("state_dir: ''", "/50-x.yaml:1: state_dir must be an absolute path"),
    ("node_name: Worker_1", "/50-x.yaml:1: node_name must be a node name: lower case letters, digits, - and ."),
    ("log: {level: loud}", "/50-x.yaml:1: log.level must be one of debug, info, warning, error"),
    ("os: {free_space: 1}\nos: {free_space: 2}", "/50-x.yaml:2: os.free_space is set twice in this file"),
    ("- a\n", "/50-x.yaml:1: must be a mapping of keys to values"),
    ("a: [", "/50-x.yaml:1: expected the node content, but found '<stream end>'"),
    ("? [a]\n: 1", "/50-x.yaml:1: a key must be a word"),
    ("when: 2024-99-99", "/50-x.yaml: not YAML: ValueError"),
    ("a: " + "[" * 5000, "/50-x.yaml: not YAML: RecursionError"),
    ("reboot: {allow: !!bool maybe}", "/50-x.yaml: not YAML: KeyError"),
    ("when: !!timestamp soon", "/50-x.yaml: not YAML: AttributeError"),
    ("os: {free_space: !!int ''}", "/50-x.yaml: not YAML: IndexError"),
    ('log:\n  level: "\\ud800"', "/50-x.yaml:2: half of a surrogate pair is not a character"),
    ('"\\ud800": &a [*a]', "/50-x.yaml:1: half of a surrogate pair is not a character"),
    ("# " + "x" * 70000, "/50-x.yaml: larger than 64 KiB"),
    (
        "a: !!python/object/apply:os.system [x]",
        "/50-x.yaml:1: could not determine a constructor for the tag 'tag:yaml.org,2002:python/object/apply:os.system'",
    ),
]


@pytest.mark.finding(
    "daemon: a start with damaged files, daemon: no bug ends it",
    "Settings, and YAML and TOML of other programs, are invalid where a value does not fit its tag, is half a "
    "surrogate pair or has too many digits; no other error leaves their readers.",
)
@pytest.mark.parametrize(("text", "expected"), TABLE, ids=[text[:30] for text, _ in TABLE])
def test_what_is_wrong_is_reported_with_file_line_and_key(text: str, expected: str, tmp_path: Path) -> None:
    assert problems(text, tmp_path) == [expected]


def test_all_errors_of_all_files_at_once(tmp_path: Path) -> None:
    (tmp_path / "10-a.yaml").write_text("a: [")
    (tmp_path / "20-b.yaml").write_bytes(b"\x00")
    found = problems("on_drift: x\nlog: {level: y}\n", tmp_path)
    assert [line.partition(":")[0] for line in found] == ["/10-a.yaml", "/20-b.yaml", "/50-x.yaml", "/50-x.yaml"]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "10-a.yaml").mkdir()
    with pytest.raises(InvalidInput) as caught:
        load([tmp_path])
    assert [(p.path, p.message) for p in caught.value.problems] == [(f"{tmp_path}/10-a.yaml", "Is a directory")]


def test_bounds_are_inclusive() -> None:
    def settings(key: str, value: object) -> Settings:
        return check_values({key: Value(value, "x")})

    assert settings("verify.timeout", 900).verify.timeout == 900
    assert settings("actions.timeout", 1).actions.timeout == 1
    assert settings("policy", "").policy == ""


def test_an_empty_file_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# nothing\n")
    assert read(tmp_path / "a.yaml") == {}


key_names = st.one_of(st.sampled_from(sorted(keys())), st.text(max_size=10))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2),
)


@pytest.mark.long
@given(st.dictionaries(key_names, values, max_size=5), st.dictionaries(key_names, values, max_size=5))
def test_whatever_is_in_it_the_answer_is_settings_or_a_problem_for_each_bad_key(
    first: dict[str, object], second: dict[str, object]
) -> None:
    fragments = [{k: Value(v, n) for k, v in f.items()} for n, f in (("1", first), ("2", second))]
    merged = merge(fragments)
    try:
        settings = check_values(merged)
    except InvalidInput as error:
        assert error.problems
        named = {p.message for p in error.problems}
        assert len(named) == len(error.problems)
        good = {k: v for k, v in merged.items() if not any(k in message for message in named)}
        check_values(good)
    else:
        flat = flatten(settings)
        assert all(flat[key] == value.value for key, value in merged.items())
