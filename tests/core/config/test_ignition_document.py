# SPDX-License-Identifier: Apache-2.0
"""An Ignition config as it is: the MachineConfig around it."""

from __future__ import annotations

import json

import pytest

from nodeagent.core.config.ignition import VERSIONS
from nodeagent.core.config.ignition_document import as_machine_config
from nodeagent.core.config.parse import parse
from nodeagent.errors import InvalidInput
from nodeagent.update.next.desired import parse_desired
from tests.core.config.documents import KEY, document, file, with_files

IGNITION = {
    "ignition": {"version": "3.4.0"},
    "storage": {
        "files": [file("/etc/a")],
        "disks": [{"device": "/dev/sda", "partitions": [{"label": "data"}]}],
        "links": [{"path": "/etc/localtime", "target": "../usr/share/zoneinfo/UTC"}],
    },
    "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [KEY]}]},
    "systemd": {"units": [{"name": "a.service", "enabled": True, "contents": "[Service]\n"}]},
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("space", ["", "\n", "\ufeff"])
def test_it_is_the_config_of_a_machine_config(version: str, space: str) -> None:
    ignition = {**IGNITION, "ignition": {"version": version}}
    text = space + json.dumps(ignition)
    config = parse(as_machine_config(text.encode()))
    wanted = document(ignition)
    wanted["metadata"]["name"] = config.name
    assert config == parse(json.dumps(wanted).encode())
    assert config.name.startswith("ignition-")
    assert parse(as_machine_config(text.encode(), "99-x")).name == "99-x"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(with_files(file("/etc/a"))),
        json.dumps({"kind": "Other", "ignition": {}}),
        json.dumps({"ignition": "3.4.0"}),
        json.dumps({"storage": {}}),
        '{"ignition": {',
        "ignition: {version: 3.4.0}",
        "[" * 100_000,
        "",
        "\xff",
    ],
)
def test_any_other_text_stays(text: str) -> None:
    assert as_machine_config(text.encode("latin-1")) == text.encode("latin-1")


def test_its_problems_are_all_named() -> None:
    broken = {**IGNITION, "networkd": {}, "storage": {"files": [file("/etc/a"), file("etc/b")]}}
    with pytest.raises(InvalidInput) as caught:
        parse(as_machine_config(json.dumps(broken).encode()))
    assert {problem.path for problem in caught.value.problems} == {
        "spec.config",
        "spec.config.storage.files[1].path",
    }


def test_another_text_has_another_name() -> None:
    names = {
        parse(as_machine_config(json.dumps({**IGNITION, "storage": {"files": files}}).encode())).name
        for files in ([], [file("/etc/a")], [file("/etc/b")])
    }
    assert len(names) == 3


async def test_the_desired_config_may_be_one() -> None:
    """What is stored and digested is the MachineConfig, as each reader of the store needs it."""
    text = json.dumps(IGNITION).encode()
    desired, again = await parse_desired(text), await parse_desired(as_machine_config(text))
    assert desired == again
    assert parse(desired.source.text) == desired.config
