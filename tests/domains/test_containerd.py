# SPDX-License-Identifier: Apache-2.0
"""containerd by key: imports, sections that are replaced whole, and the plugins that have to work."""

from __future__ import annotations

import pytest

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.core.plan.change import KeyChange
from nodeagent.core.plan.domain import PluginHealth, UnitFailure
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.domains import curable, default_policy, health_of, validate, warnings
from nodeagent.domains.containerd import CRI, DOMAIN, PLUGINS, RESTARTED
from nodeagent.host.health import plugin_problems

MAIN, DROPIN, CERTS = (
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/a.toml",
    "/etc/containerd/certs.d/x/hosts.toml",
)
IMPORTS = 'imports = ["conf.d/*.toml"]\n'
RESTART, STRONGEST, NONE = ["Restart containerd.service"], ["Drain", "Reboot"], ["None"]


def config(files: dict[str, str]) -> MachineConfig:
    return MachineConfig("x", files={path: FileEntry(path, text.encode()) for path, text in files.items()})


def actions(old: dict[str, str], new: dict[str, str], host: dict[str, bytes] | None = None) -> list[str]:
    plan = make_plan(config(old), config(new), default_policy(), host=HostView(host or {}))
    return [f"{action.type} {action.unit}".strip() for action in plan.actions]


@pytest.mark.parametrize(
    ("table", "key", "expected"),
    [
        *[("", name, RESTART) for name in RESTARTED if name not in ("imports", "disabled_plugins")],
        *[(f'plugins."{name}"', "some_key", RESTART) for name in PLUGINS],
        ('plugins."io.containerd.grpc.v1.cri".containerd', "snapshotter", STRONGEST),
        ('plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options', "SystemdCgroup", STRONGEST),
        ('plugins."io.containerd.snapshotter.v1.zfs"', "root_path", STRONGEST),
        ('plugins."io.containerd.new.v9.thing"', "x", STRONGEST),
        ("", "root", STRONGEST),
        ("", "state", STRONGEST),
        ("grpc", "address", STRONGEST),
    ],
)
def test_each_key_has_its_actions(table: str, key: str, expected: list[str]) -> None:
    old, new = ({MAIN: (f"[{table}]\n" if table else "") + f"{key} = {value}\n"} for value in (1, 2))
    assert actions(old, new) == expected


def test_imports_are_part_of_the_document() -> None:
    old, new = ({MAIN: IMPORTS, DROPIN: f'[debug]\nlevel = "{level}"\n'} for level in ("info", "debug"))
    assert actions(old, new) == RESTART
    host = {MAIN: IMPORTS.encode()}
    assert actions({DROPIN: old[DROPIN]}, {DROPIN: new[DROPIN]}, host) == RESTART, "of a file of the host too"
    assert actions({DROPIN: old[DROPIN]}, {DROPIN: new[DROPIN]}) == STRONGEST, "it is not known what reads it"
    (found,) = DOMAIN.changes(Sides(config(old), config(new)))
    assert (found.document, found.key) == (DROPIN, "debug.level")
    assert set(DOMAIN.reads(Sides(config(old), config(new)))) == {MAIN, "/etc/containerd/conf.d/"}


@pytest.mark.parametrize(
    ("imports", "path", "copied"),
    [
        ("/etc/containerd/conf.d/*.toml", "/etc/containerd/conf.d/a.toml", "conf.d/*.toml"),
        ("/etc/other/./b.toml", "/etc/other/b.toml", "../other/b.toml"),
        ("conf.d/a.toml", "/etc/containerd/conf.d/a.toml", "conf.d/a.toml"),
    ],
)
@pytest.mark.parametrize("quote", "\"'")
def test_the_check_reads_the_candidates_of_all_imports(imports: str, path: str, copied: str, quote: str) -> None:
    main = f"imports = [\n  {quote}{imports}{quote},\n]\n"
    host = HostView({path: b"[debug]\n"})
    (check,) = DOMAIN.programs(Sides(config({MAIN: main}), config({MAIN: f"{main}oom_score = 1\n"}), host))
    assert check.tree == {
        MAIN: f"imports = [\n  {quote}{copied}{quote},\n]\noom_score = 1\n".encode(),
        path: b"[debug]\n",
    }


def test_a_name_that_is_a_value_of_another_key_too_is_not_replaced() -> None:
    main = f'imports = ["{DROPIN}"]\nroot = "{DROPIN}"\n'
    (check,) = DOMAIN.programs(Sides(config({MAIN: ""}), config({MAIN: main})))
    assert check.tree[MAIN] == main.encode()


def test_a_pattern_of_imports_does_not_reach_into_subdirectories() -> None:
    host = {MAIN: IMPORTS.encode(), DROPIN.replace("a.toml", "sub/a.toml"): b"oom_score = 1"}
    assert actions({}, {DROPIN: ""}, host) == NONE
    assert health_of(
        "containerd.service", HostView({**host, DROPIN.replace("a.", "sub/x."): b'disabled_plugins = ["cri"]'})
    )


def test_files_that_are_read_by_accident_are_named() -> None:
    directory = "/etc/containerd/conf.d"
    host = HostView(dict.fromkeys((f"{directory}/.a.toml", f"{directory}/a.toml.bak", f"{directory}/a.toml"), b""))
    for imports, expected in (("*.toml", [".a.toml"]), ("*", [".a.toml", "a.toml.bak"]), (".a.toml", [])):
        main = f'imports = ["{directory}/{imports}"]\n'
        found = warnings(config({MAIN: main}), config({MAIN: main}), host)
        assert [problem.path for problem in found] == [f"{directory}/{name}" for name in expected]


def test_an_import_replaces_the_section_of_a_plugin() -> None:
    main = f'{IMPORTS}[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "a"\nmax_container_log_line_size = 1\n'
    old = {MAIN: main}
    new = {MAIN: main, DROPIN: '[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "b"\n'}
    keys = [change.key for change in DOMAIN.changes(Sides(config(old), config(new)))]
    names = ("max_container_log_line_size", "sandbox_image")
    assert keys == [f'plugins."io.containerd.grpc.v1.cri".{name}' for name in names]
    assert actions(old, new) == RESTART


def test_lists_are_added_and_empty_values_replace_nothing() -> None:
    old = {MAIN: f'{IMPORTS}disabled_plugins = ["a.b"]\noom_score = 1\n'}
    new = {**old, DROPIN: 'oom_score = 0\ndisabled_plugins = ["c.d"]\n'}
    (found,) = DOMAIN.changes(Sides(config(old), config(new)))
    assert (found.key, found.after) == ("disabled_plugins", '["a.b", "c.d"]')


def test_files_of_registries_are_read_at_each_pull() -> None:
    assert actions({}, {CERTS: "x"}) == NONE


def test_a_file_that_is_no_toml() -> None:
    for path in (MAIN, DROPIN):
        (problem,) = validate(config({}), config({path: "[debug"}))
        assert problem.path == path


def test_imports_in_a_circle_end() -> None:
    files = {MAIN: f'imports = ["{MAIN}", "{DROPIN}"]\n', DROPIN: f'imports = ["{MAIN}"]\n'}
    assert list(DOMAIN.changes(Sides(config(files), config(files)))) == []


def test_the_plugins_of_the_cri_have_to_work() -> None:
    assert health_of("containerd.service", HostView({})) == (PluginHealth("containerd.service", CRI),)
    for disabled in ("cri", CRI[0]):
        off = HostView({MAIN: f'disabled_plugins = ["{disabled}"]'.encode()})
        assert all(
            CRI[0] not in health.plugins
            for health in health_of("containerd.service", off)
            if isinstance(health, PluginHealth)
        )


LISTED = """\
TYPE                                  ID                       PLATFORMS      STATUS
io.containerd.content.v1              content                  -              ok
io.containerd.snapshotter.v1          zfs                      linux/amd64    skip
io.containerd.grpc.v1                 cri                      linux/amd64    {}
""".splitlines()


def test_the_states_of_plugins() -> None:
    state = lambda word: [line.replace("{}", word) for line in LISTED]  # noqa: E731
    assert plugin_problems(state("ok"), CRI) == ""
    assert plugin_problems(state("error"), CRI) == "plugin io.containerd.grpc.v1.cri is in the state error"
    assert "none of the plugins" in plugin_problems(LISTED[:3], CRI)


def test_a_reboot_does_not_mend_a_bad_configuration() -> None:
    key = KeyChange(MAIN, "debug.level", "1", "2", ())
    assert not curable(UnitFailure("containerd.service", "", (key,)))
    assert curable(UnitFailure("containerd.service", ""))
