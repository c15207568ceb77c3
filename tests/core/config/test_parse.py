# SPDX-License-Identifier: Apache-2.0
"""The frame of a MachineConfig, and the rules for all of its sections."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nodeagent.core.config import parse as parsing
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry, UserEntry
from nodeagent.core.config.parse import parse, parse_document
from nodeagent.core.config.problems import MAX_SHOWN, first_of
from nodeagent.errors import InvalidInput, Problem
from tests.core.config.documents import (
    FILES,
    KEY,
    UNITS,
    Doc,
    as_yaml,
    document,
    file,
    in_base64,
    parsed,
    paths_of,
    problems,
    text,
    with_files,
    with_units,
)


@pytest.mark.finding("configs: documents and types", "A value of a wrong type is reported once.")
@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"metadata": {"name": 7}}, "metadata.name"),
        ({"metadata": {"name": False}}, "metadata.name"),
        ({"apiVersion": 1}, "apiVersion"),
        ({"kind": ["MachineConfig"]}, "kind"),
    ],
)
def test_a_wrong_type_is_one_problem(change: Doc, path: str) -> None:
    assert paths_of({**document(), **change}) == [path]


@pytest.mark.finding("configs: each wrong value", "A key of another format is named with what to do about it.")
@pytest.mark.parametrize(
    ("doc", "words"),
    [
        (
            with_files({"path": "/etc/a", "filesystem": "root"}),
            "unknown key 'filesystem': it is of Ignition 2, delete it",
        ),
        (document({"networkd": {}}), "unknown key 'networkd': it is of Ignition 2; delete it"),
        (document(ignition={"version": "3.4.0"}), "unknown key 'ignition': it belongs below spec.config"),
        (document({"kernelType": "realtime"}), "unknown key 'kernelType': it belongs below spec"),
        ({**document(), "storage": {}}, "unknown key 'storage': it belongs below spec.config"),
    ],
)
def test_a_key_of_another_format_has_advice(doc: Doc, words: str) -> None:
    assert any(words in problem.message for problem in problems(doc))


def test_the_least_config() -> None:
    assert parsed(document()) == MachineConfig("rendered-worker-1")
    assert parsed(document(config={})) == MachineConfig("rendered-worker-1")
    assert parsed({**document(), "spec": None}) == MachineConfig("rendered-worker-1")
    assert parsed({**document(), "status": {"anything": [1]}}) == MachineConfig("rendered-worker-1")


def test_a_rendered_config() -> None:
    """The form of the machine-config-operator: empty objects where Go has no pointer."""
    doc = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {
            "name": "rendered-worker-0a1b",
            "annotations": {"machineconfiguration.openshift.io/generated-by-controller-version": "x"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"controller": True}],
        },
        "spec": {
            "baseOSExtensionsContainerImage": "quay.io/ext@sha256:1",
            "config": {
                "ignition": {"config": {"replace": {"verification": {}}}, "proxy": {}, "security": {"tls": {}},
                             "timeouts": {}, "version": "3.5.0"},
                "kernelArguments": {},
                "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [KEY]}]},
                "storage": {"files": [
                    {"contents": {"compression": "", "source": in_base64(b"a"), "verification": {}},
                     "group": {}, "mode": 420, "overwrite": True, "path": "/etc/a", "user": {"name": "root"}},
                    {"contents": {"source": None}, "path": "/etc/b"},
                ]},
                "systemd": {"units": [
                    {"contents": "[Unit]\n", "dropins": [{"contents": "[Service]\n", "name": "10-a.conf"}],
                     "enabled": True, "name": "a.service"},
                    {"mask": True, "name": "b.service"},
                    {"dropins": [{"contents": "", "name": "c.conf"}], "name": "c.service"},
                ]},
            },
            "extensions": ["usbguard", "kerberos", "usbguard"],
            "fips": True,
            "kernelArguments": ["b a", 'c="d e"'],
            "kernelType": "realtime",
            "osImageURL": "quay.io/os@sha256:2",
        },
    }  # fmt: skip
    assert parsed(doc) == MachineConfig(
        "rendered-worker-0a1b",
        files={"/etc/a": FileEntry("/etc/a", b"a"), "/etc/b": FileEntry("/etc/b", b"")},
        units={
            "a.service": UnitEntry("a.service", "[Unit]\n", True, False, {"10-a.conf": "[Service]\n"}),
            "b.service": UnitEntry("b.service", mask=True),
            "c.service": UnitEntry("c.service"),
        },
        users={"core": UserEntry("core", (KEY,))},
        kernel_arguments=("b", "a", 'c="d e"'),
        extensions=("kerberos", "usbguard"),
        kernel_type="realtime",
        fips=True,
        os_image_url="quay.io/os@sha256:2",
        extensions_image="quay.io/ext@sha256:1",
    )


@pytest.mark.finding("configs: versions of Ignition", "Each stable version of Ignition 3 is read.")
@pytest.mark.parametrize("version", ["3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0", "3.6.0"])
def test_ignition_version_is_read(version: str) -> None:
    parsed(document({}, version=version))


@pytest.mark.parametrize(
    "version", ["", "3", "3.2", "2.2.0", "2.3.0", "3.7.0", "3.7.0-experimental", "1", 3, None, ["3.2.0"]]
)
def test_ignition_version_is_refused(version: Any) -> None:
    doc = document({})
    doc["spec"]["config"]["ignition"]["version"] = version
    assert "spec.config.ignition.version" in paths_of(doc)


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ({"kernelArguments": "a"}, "kernelArguments", "must be a list"),
        ({"kernelArguments": ["a", 1]}, "kernelArguments[1]", "must be a string"),
        ({"kernelArguments": ['a="b']}, "kernelArguments[0]", "unpaired double quote"),
        ({"kernelArguments": ["quiet ostree=/ostree/boot.0"]}, "kernelArguments[0]", "written by libostree"),
        ({"kernelArguments": ["a" * 4097]}, "kernelArguments[0]", "longer than 4096 characters"),
        ({"kernelArguments": ["a" * 2048] * 2}, "kernelArguments", "longer than 4096 characters together"),
        ({"extensions": ["a b"]}, "extensions[0]", "not the name of an extension"),
        ({"extensions": ["--install"]}, "extensions[0]", "not the name of an extension"),
        ({"extensions": {"a": 1}}, "extensions", "must be a list"),
        ({"kernelType": "rt"}, "kernelType", "must be one of default, realtime, 64k-pages"),
        ({"kernelType": 64}, "kernelType", "must be a string"),
        ({"fips": "true"}, "fips", "must be true or false"),
        ({"osImageURL": "a b"}, "osImageURL", "must not hold spaces"),
        ({"osImageURL": ["a"]}, "osImageURL", "must be a string"),
        ({"baseOSExtensionsContainerImage": "a\n"}, "baseOSExtensionsContainerImage", "must not hold spaces"),
        ({"kernelArgs": []}, "", "unknown key 'kernelArgs'"),
    ],
)
def test_spec_is_refused(spec: Doc, path: str, message: str) -> None:
    found = [p for p in problems(document(**spec)) if p.path == ("spec" + (f".{path}" if path else ""))]
    assert any(message in problem.message for problem in found)


@pytest.mark.parametrize(
    ("name", "normal"), [("", "default"), (None, "default"), ("default", "default"), ("64k-pages", "64k-pages")]
)
def test_kernel_type(name: str | None, normal: str) -> None:
    assert parsed(document(kernelType=name)).kernel_type == normal


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"apiVersion": "v1"}, "apiVersion"),
        ({"apiVersion": None}, "apiVersion"),
        ({"kind": "Secret"}, "kind"),
        ({"kind": ["MachineConfig"]}, "kind"),
        ({"metadata": {}}, "metadata.name"),
        ({"metadata": {"name": ""}}, "metadata.name"),
        ({"metadata": {"name": "a\nb"}}, "metadata.name"),
        ({"metadata": {"name": "../b"}}, "metadata.name"),
        ({"metadata": {"name": "n" * 254}}, "metadata.name"),
        ({"metadata": {"name": 7}}, "metadata.name"),
        ({"metadata": None}, "metadata.name"),
        ({"spec": []}, "spec"),
        ({"data": {}}, ""),
        ({"spec": {"config": "x"}}, "spec.config"),
    ],
)
def test_frame_is_refused(change: Doc, path: str) -> None:
    assert path in paths_of({**document(), **change})


@pytest.mark.parametrize("doc", [[], [document()], "text", 7, None, True])
def test_what_is_no_object(doc: object) -> None:
    with pytest.raises(InvalidInput, match="must be an object"):
        parse_document(doc)


def test_all_problems_come_at_once_in_order() -> None:
    doc = document(
        {
            "storage": {"files": [*(file(f"/etc/{i}") for i in range(9)), {"path": "x"}, {"path": "/y", "mode": -1}]},
            "systemd": {"units": [{"name": "a"}]},
        },
        kernelType="x",
    )
    doc["kind"] = "Pod"
    doc["spec"]["config"]["storage"]["files"][2]["mode"] = "0644"
    assert paths_of(doc) == [
        "kind",
        f"{FILES}[2].mode",
        f"{FILES}[9].path",
        f"{FILES}[10].mode",
        f"{UNITS}[0].name",
        "spec.kernelType",
    ]
    with pytest.raises(InvalidInput) as caught:
        parse(text(doc), "b.json")
    assert caught.value.message == "b.json is invalid: kind: must be MachineConfig, is 'Pod' (and 5 more)"


def test_many_problems_are_cut() -> None:
    found = problems(with_files(*({"path": f"x{i}"} for i in range(20_000))))
    assert len(found) == MAX_SHOWN + 1
    assert found[-1] == Problem("", f"{20_000 - MAX_SHOWN} more problems are not shown")


def alike(count: int, first: int = 0) -> list[Doc]:
    return [file(f"/etc/{index}", mode=-1) for index in range(first, first + count)]


@pytest.mark.parametrize(("count", "kept"), [(1, 1), (3, 3), (4, 4), (5, 3), (50, 3)])
def test_of_problems_alike_the_first_ones_and_their_number_are_kept(count: int, kept: int) -> None:
    found = problems(with_files(*alike(count), {"path": "x"}))
    assert [problem.path for problem in found[:kept]] == [f"{FILES}[{index}].mode" for index in range(kept)]
    assert found[-1].path == f"{FILES}[{count}].path"
    notes = [problem for problem in found if "more like these" in problem.message]
    assert len(found) == kept + len(notes) + 1
    if kept == count:
        assert not notes
        return
    (note,) = notes
    assert note.path == f"{FILES}[*].mode"
    assert note.message.endswith(f": {count - kept} more like these")
    assert found.index(note) == kept, "it is where they would be"


@pytest.mark.parametrize(
    ("path", "count", "words"),
    [("", 1, "m"), ("a", 1, "a: m"), ("", 2, "m (and 1 more)"), ("a", 3, "a: m (and 2 more)")],
)
def test_the_first_problem_and_the_number_of_the_others(path: str, count: int, words: str) -> None:
    assert first_of([Problem(path, "m")], count) == words


def test_long_names_are_cut_in_messages() -> None:
    doc = with_files({"path": "x" * 100_000}, {"k" * 100_000: 1, "path": "/a"})
    assert all(len(problem.message) < 200 for problem in problems(doc))


def test_the_last_of_repeated_keys_counts_in_json() -> None:
    """The rule of the API server. The daemon and the cluster must read the same config."""
    entry = file("/etc/a", "a", mode=0o600)
    once = text(with_files(entry))
    for first in ('"mode": 420', '"path": "/etc/b"', '"p\\u0061th": "/etc/b"', '"contents": {"source": "data:,b"}'):
        assert parse(once.replace(b'{"path"', b"{" + first.encode() + b', "path"')) == parse(once)
    for key in ("files", "storage", "config", "spec", "metadata", "ignition"):
        assert parse(once.replace(f'"{key}":'.encode(), f'"{key}": null, "{key}":'.encode(), 1)) == parse(once)
    # The second pass follows the same rule.
    with pytest.raises(InvalidInput) as caught:
        parse(once.replace(b'{"path"', b'{"mode": -1, "path": "x", "path"').replace(b'"data:,a"', b'"data:"'))
    assert [problem.path for problem in caught.value.problems] == [f"{FILES}[0].contents.source"]


def test_a_repeated_key_in_yaml_is_a_problem() -> None:
    with pytest.raises(InvalidInput, match="the key 'mode' occurs twice"):
        parse(as_yaml(with_files(file(mode=420))).replace(b'"mode"', b'"mode": 420, "mode"'))


@pytest.mark.finding(
    "updates: large configs", "A config of more than 20,000 files, units and drop-ins is rejected when it is read."
)
@pytest.mark.parametrize("section", ["files", "units", "dropins"])
def test_a_config_of_more_paths_than_can_be_applied_is_rejected(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MAX_PATHS", 5)

    def of(count: int) -> Doc:
        match section:
            case "files":
                return with_files(*({"path": f"/etc/f{index}"} for index in range(count)))
            case "units":
                return with_units(*({"name": f"u{index}.service", "enabled": True} for index in range(count)))
            case _:
                names = [{"name": f"{index}.conf", "contents": "[Unit]"} for index in range(count - 1)]
                return with_units({"name": "u.service", "dropins": names})

    assert parsed(of(5))
    wanted = Problem("spec.config", "has 6 files, units and drop-ins; at most 5 can be applied")
    assert problems(of(6)) == (wanted,)


@pytest.mark.finding(
    "configs: other formats", "Butane, bare Ignition and lists are recognised by name, with the way out."
)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"variant: fcos\nversion: 1.5.0\npasswd: {}\n", "is a Butane config (variant: 'fcos'): run butane"),
        (b"ignition: {version: 3.4.0}\nstorage: {}\n", "is an Ignition config: it is read as JSON"),
        (b"apiVersion: v1\nkind: List\nitems:\n- kind: MachineConfig\n", "is a list of 1 objects: take one of them"),
        (
            b"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigList\nitems: []\n",
            "list of 0 objects",
        ),
        (b"apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n", "is of the kind 'ConfigMap'"),
        (
            b"apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nspec: {}\n",
            "'KubeletConfig', and a",
        ),
        (b"apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\n", "is a policy and no config"),
        (b"files: [{path: /etc/a, actions: [{type: None}]}]\n", "nodeagent policy check FILE"),
        (b'{"answer": 42}', "has none of apiVersion, kind, metadata and spec"),
    ],
)
def test_what_people_take_for_a_machine_config(text: bytes, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)) as caught:
        parse(text, "FILE")
    assert (caught.value.reason, caught.value.problems) == ("NotMachineConfig", ())
