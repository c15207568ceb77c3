# SPDX-License-Identifier: Apache-2.0
"""How MachineConfigs of a pool become one: the rules of the machine-config-controller, one test for each."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.parse import ROLE, parse
from nodeagent.core.fragments import render as render_module
from nodeagent.core.fragments.render import GENERATED, Fragment, in_order, read_fragment, render
from nodeagent.errors import InvalidInput

DIGEST = "sha256:" + "a" * 64


def fragment(name: str, role: str = "worker", *, own: bool = False, generated: bool = False, **spec: Any) -> Fragment:
    metadata: dict[str, Any] = {"name": name, "labels": {ROLE: role} if role else None}
    if generated:
        metadata["annotations"] = {GENERATED: "deadbeef"}
    document = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": metadata,
        "spec": spec,
    }
    return read_fragment(json.dumps(document).encode(), f"{name}.yaml", own=own)


def files(version: str = "3.4.0", **contents: str) -> dict[str, Any]:
    """An Ignition config with files in /etc."""
    entries = [{"path": f"/etc/{name}", "contents": {"source": f"data:,{text}"}} for name, text in contents.items()]
    return {"ignition": {"version": version}, "storage": {"files": entries}}


def merged(*fragments: Fragment) -> MachineConfig:
    return parse(render(fragments))


def content(config: MachineConfig, name: str) -> bytes:
    return config.files[f"/etc/{name}"].content


@pytest.mark.parametrize(
    "names_in_order",
    [
        ["worker/C", "worker/a", "worker/b"],  # byte by byte: capitals come first
        ["worker/100-x", "worker/99-x"],  # not by number
        ["worker/99-worker", "infra/00-custom"],  # a custom pool overrides what all workers have
        ["worker/99-worker", "/50-none", "infra/60-infra"],
        ["infra/99-infra", "own/00-own"],  # what this host has of its own comes last
    ],
)
def test_the_order(names_in_order: list[str]) -> None:
    fragments = []
    for text in reversed(names_in_order):
        role, _, name = text.partition("/")
        fragments.append(fragment(name, "worker" if role == "own" else role, own=role == "own"))
    assert [f.name for f in in_order(fragments)] == [text.partition("/")[2] for text in names_in_order]


def test_of_a_file_in_two_the_later_one_counts() -> None:
    config = merged(fragment("50-a", config=files(x="a", y="a")), fragment("99-b", config=files(x="b")))
    assert (content(config, "x"), content(config, "y")) == (b"b", b"a")
    assert config.origins == {"file:/etc/x": ("50-a", "99-b"), "file:/etc/y": ("50-a",)}


def test_drop_ins_of_one_unit_come_from_several() -> None:
    def unit(dropin: str, **more: Any) -> dict[str, Any]:
        entry = {"name": "kubelet.service", "dropins": [{"name": dropin, "contents": "[Service]\n"}], **more}
        return {"ignition": {"version": "3.2.0"}, "systemd": {"units": [entry]}}

    config = merged(fragment("a", config=unit("10-a.conf", enabled=True)), fragment("b", config=unit("20-b.conf")))
    entry = config.units["kubelet.service"]
    assert (entry.enabled, set(entry.dropins)) == (True, {"10-a.conf", "20-b.conf"})
    assert config.origins == {"unit:kubelet.service": ("a", "b")}


def test_lists_of_the_spec_follow_each_other() -> None:
    config = merged(
        fragment("b", kernelArguments=["b", "x=2"], extensions=["usbguard"]),
        fragment("a", kernelArguments=["a", "x=1"], extensions=["usbguard", "ipsec"]),
    )
    assert config.kernel_arguments == ("a", "x=1", "b", "x=2")
    assert config.extensions == ("ipsec", "usbguard")


@pytest.mark.parametrize(
    ("kinds", "result"),
    [
        (["realtime", "default"], "realtime"),  # default does not take another type away
        (["realtime", "64k-pages"], "64k-pages"),
        (["", ""], "default"),
    ],
)
def test_the_last_type_of_kernel_that_is_not_the_default_counts(kinds: list[str], result: str) -> None:
    assert merged(*(fragment(f"{n}", kernelType=kind) for n, kind in enumerate(kinds))).kernel_type == result


def test_fips_is_on_if_one_says_so() -> None:
    assert merged(fragment("a", fips=True), fragment("b", fips=False)).fips


def test_the_last_image_that_an_admin_chose_counts() -> None:
    release, chosen = f"quay.example/release@{DIGEST}", f"quay.example/mine@{DIGEST}"
    config = merged(
        fragment("00-worker", generated=True, osImageURL=release, baseOSExtensionsContainerImage=release),
        fragment("50-mine", osImageURL=chosen, baseOSExtensionsContainerImage=chosen),
        fragment("99-worker-generated", generated=True, osImageURL=release),
    )
    assert (config.os_image_url, config.extensions_image) == (chosen, chosen)


def test_the_newest_version_of_ignition_is_that_of_the_result() -> None:
    text = json.loads(
        render([fragment("a", config=files("3.5.0", x="1")), fragment("b", config=files("3.1.0", y="1"))])
    )
    assert text["spec"]["config"]["ignition"]["version"] == "3.5.0"
    assert [file["overwrite"] for file in text["spec"]["config"]["storage"]["files"]] == [True, True]


def test_without_an_ignition_config() -> None:
    config = merged(fragment("a", kernelArguments=["nosmt"]), fragment("b", config={"storage": None}))
    assert config.kernel_arguments == ("nosmt",)


def test_the_name_follows_from_the_content_and_the_pool() -> None:
    first, again = (merged(fragment("a", config=files(x="1"))).name for _ in range(2))
    assert first == again
    assert first.startswith("rendered-worker-")
    assert merged(fragment("other-name", config=files(x="1"))).name == first
    assert merged(fragment("a", config=files(x="2"))).name != first
    assert merged(fragment("a"), fragment("b", "infra")).name.startswith("rendered-infra-")
    assert merged(fragment("a", "")).name.startswith("rendered-host-")


def test_what_this_host_has_of_its_own_is_merged_last() -> None:
    config = merged(
        fragment("00-host", own=True, config=files(hostname="h1")), fragment("99-z", config=files(hostname="any"))
    )
    assert content(config, "hostname") == b"h1"
    assert config.origins == {"file:/etc/hostname": ("99-z", "00-host")}


@pytest.mark.parametrize(
    ("fragments", "message"),
    [
        ([], "there is no MachineConfig"),
        ([fragment("a"), fragment("a", "infra")], "a.yaml and a.yaml both have the MachineConfig a"),
        ([fragment("a", "master"), fragment("b", "worker")], "a.yaml is for the pool master and b.yaml for worker"),
        ([fragment("a", extensions=["kernel-devel"]), fragment("b", kernelType="realtime")], "kernel-devel"),
    ],
)
def test_what_no_host_can_have(fragments: list[Fragment], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        render(fragments)


def test_a_fragment_with_problems_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"x\.yaml"):
        fragment("x", config=files("2.2.0", a="1"))


@pytest.mark.parametrize("annotation", ["{", "[]", '{"file:/x": "a"}', '{"file:/x": ["a\\u001b"]}', 7, None])
def test_an_annotation_of_another_form_explains_nothing(annotation: object) -> None:
    text = json.loads(render([fragment("a", config=files(x="1"))]))
    text["metadata"]["annotations"]["nodeagent.org/origins"] = annotation
    assert parse(json.dumps(text).encode()).origins == {}


def test_a_file_of_two_has_contents_mode_and_owner_of_the_last_one_that_names_them() -> None:
    def entry(**keys: Any) -> dict[str, Any]:
        return {"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/etc/x", **keys}]}}

    packed = {"source": f"data:;base64,{b64encode(gzip.compress(b'one')).decode()}", "compression": "gzip"}
    first = fragment("a", config=entry(contents=packed, mode=0o600, user={"name": "app"}, overwrite=False))
    file = merged(first, fragment("b", config=entry(mode=0o640))).files["/etc/x"]
    assert (file.content, file.mode, file.user, file.overwrite) == (b"one", 0o640, "app", False)
    file = merged(first, fragment("b", config=entry(contents={"source": "data:,two"}))).files["/etc/x"]
    assert (file.content, file.mode, file.user) == (b"two", 0o600, "app")


def test_a_link_takes_the_place_of_a_file() -> None:
    link = {"ignition": {"version": "3.4.0"}, "storage": {"links": [{"path": "/etc/x", "target": "/y"}]}}
    text = json.loads(render([fragment("a", config=files(x="1")), fragment("b", config=link)]))
    assert text["spec"]["config"]["storage"] == {"links": [{"path": "/etc/x", "target": "/y"}]}


def test_keys_of_a_user_are_those_of_all() -> None:
    def keys(*names: str) -> dict[str, Any]:
        listed = [
            f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGKBGq0mTDtiMvTGAgKFZsdUfnrOuV9zQhZPm1k1l5aV {n}" for n in names
        ]
        return {"ignition": {"version": "3.4.0"}, "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": listed}]}}

    config = merged(fragment("a", config=keys("x", "y")), fragment("b", config=keys("y", "z")))
    assert [key.rpartition(" ")[2] for key in config.users["core"].ssh_keys] == ["x", "y", "z"]


def test_arguments_of_ignition_are_wanted_or_not() -> None:
    def arguments(**lists: list[str]) -> dict[str, Any]:
        return {"ignition": {"version": "3.4.0"}, "kernelArguments": lists}

    first = fragment("a", config=arguments(shouldExist=["x", "y"], shouldNotExist=["z"]), kernelArguments=["a=1"])
    config = merged(first, fragment("b", config=arguments(shouldExist=["z", "y"], shouldNotExist=["x"])))
    assert (config.kernel_arguments, config.absent_arguments) == (("a=1", "y", "z"), ("x",))


PAGE = Path(__file__).parents[3] / "docs/usage/merge.md"
# The test of each row of the table there.
ROWS = {
    "order": test_the_order,
    "pools": test_what_no_host_can_have,
    "files": test_a_file_of_two_has_contents_mode_and_owner_of_the_last_one_that_names_them,
    "directories and links": test_a_link_takes_the_place_of_a_file,
    "compression": test_a_file_of_two_has_contents_mode_and_owner_of_the_last_one_that_names_them,
    "`overwrite`": test_the_newest_version_of_ignition_is_that_of_the_result,
    "units": test_drop_ins_of_one_unit_come_from_several,
    "users": test_keys_of_a_user_are_those_of_all,
    "`kernelArguments`": test_lists_of_the_spec_follow_each_other,
    "`kernelArguments` of Ignition": test_arguments_of_ignition_are_wanted_or_not,
    "`extensions`": test_lists_of_the_spec_follow_each_other,
    "`kernelType`": test_the_last_type_of_kernel_that_is_not_the_default_counts,
    "`fips`": test_fips_is_on_if_one_says_so,
    "`osImageURL`, `baseOSExtensionsContainerImage`": test_the_last_image_that_an_admin_chose_counts,
    "version of Ignition": test_the_newest_version_of_ignition_is_that_of_the_result,
    "name": test_the_name_follows_from_the_content_and_the_pool,
}


def test_each_rule_of_the_page_has_a_test() -> None:
    rows = re.findall(r"^\| (.+?) \| ", PAGE.read_text().partition("## The rules")[2], re.MULTILINE)
    assert rows[1:] == list(ROWS)


def test_the_number_of_fragments_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_module, "MAX_FRAGMENTS", 2)
    parts = [fragment(f"0{number}-worker") for number in range(3)]
    assert merged(*parts[:2])
    with pytest.raises(InvalidInput, match="there are 3 MachineConfigs"):
        merged(*parts)
