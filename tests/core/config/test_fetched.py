# SPDX-License-Identifier: Apache-2.0
"""Files of a config that come from a server: links to what is kept by its digest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodeagent.core.config.fetched import KEPT, digest_at, fetched_of, kept_at
from nodeagent.core.config.file_tree import SymbolicLink, expand
from nodeagent.core.config.machineconfig import MachineConfig, meaning
from nodeagent.core.config.parse import parse
from nodeagent.core.plan.diff import diff
from nodeagent.domains import check_update
from nodeagent.errors import InvalidInput, Unreconcilable

PATH = "/var/lib/extensions/app.raw"
HASH = f"sha256-{'a' * 64}"


def entry(path: str = PATH, source: str = "https://images/app.raw", wanted: str = HASH, **more: Any) -> dict[str, Any]:
    contents = {"source": source, "verification": {"hash": wanted}, **more.pop("contents", {})}
    return {"path": path, "contents": contents, **more}


def read(*files: dict[str, Any], **storage: Any) -> MachineConfig:
    document = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": "x"},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files, **storage}}},
    }
    return parse(json.dumps(document).encode())


@pytest.mark.parametrize(
    "path",
    [
        PATH,
        "/etc/extensions/app.raw",
        "/opt/extensions/app/app-v1.raw",
        "/var/lib/extensions.d/app-1-x86-64.raw",
    ],
)
@pytest.mark.parametrize("wanted", [HASH, f"sha512-{'b' * 128}"])
def test_an_image_is_a_link_to_what_is_kept_by_its_digest(path: str, wanted: str) -> None:
    config = read(entry(path, wanted=wanted))
    assert expand(config) == {path: SymbolicLink(f"{KEPT}/{wanted}.raw")}
    assert fetched_of(config)[path].source == "https://images/app.raw"
    assert digest_at(fetched_of(config)[path].target) == wanted
    assert config.files == {}


def test_another_server_of_the_same_content_is_no_change() -> None:
    old, new = read(entry()), read(entry(source="http://mirror:8080/a?x=1", wanted=HASH.upper().replace("SHA", "sha")))
    assert not diff(old, new)
    assert meaning(old) == meaning(new)
    assert meaning(old) != meaning(read(entry(wanted=f"sha256-{'c' * 64}")))


@pytest.mark.parametrize(
    ("file", "where", "words"),
    [
        (entry(wanted=""), "contents.verification.hash", "is needed for a file that is fetched"),
        (entry(wanted="sha256-x"), "contents.verification.hash", "is needed"),
        (entry(wanted=f"md5-{'a' * 32}"), "contents.verification.hash", "is needed"),
        (entry(source="https://user:secret@h/x"), "contents.source", "without credentials"),
        (entry(source="https://h:99999/x"), "contents.source", "without credentials"),
        (entry(source="https:///x"), "contents.source", "http or https address"),
        (entry(source="https://h/a b"), "contents.source", "without spaces"),
        (entry(source=f"https://h/{'a' * 3000}"), "contents.source", "at most 2048"),
        (entry(contents={"compression": "gzip"}), "contents.compression", "must be empty"),
        (entry(contents={"httpHeaders": [{"name": "A", "value": "b"}]}), "contents.httpHeaders", "are not sent"),
        (entry(user={"name": "core"}), "user", "must be root"),
        (entry(group={"id": 1000}), "group", "must be root"),
        (entry("/var/lib/confexts/app.raw"), "path", "makes /etc read-only"),
        (entry("/var/lib/extensions/a/b.raw"), "contents.source", "must be a data: URL"),
        (entry("/var/lib/extensions/app.img"), "contents.source", "must be a data: URL"),
        (entry("/etc/app.raw"), "contents.source", "must be a data: URL"),
        (entry(source="s3://bucket/x"), "contents.source", "must be a data: URL"),
    ],
)
def test_what_is_refused(file: dict[str, Any], where: str, words: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read(file)
    problems = [problem for problem in raised.value.problems if problem.path.endswith(f"[0].{where}")]
    assert words in problems[0].message
    assert "secret" not in str(raised.value.problems)


@pytest.mark.parametrize(
    ("files", "storage"),
    [
        ([entry(), entry()], {}),
        ([entry(), {"path": PATH}], {}),
        ([entry()], {"links": [{"path": PATH, "target": "/x"}]}),
        ([entry(), {"path": f"{PATH}/x"}], {}),
    ],
)
def test_a_path_has_one_entry(files: list[dict[str, Any]], storage: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        read(*files, **storage)


def test_the_image_of_nodeagent_itself_is_not_managed() -> None:
    own = entry("/var/lib/extensions/nodeagent.raw")
    config = read(own)
    assert expand(config) == {}
    check_update(config, read(own), "x")
    with pytest.raises(Unreconcilable, match="nodeagent itself"):
        check_update(config, read(entry("/var/lib/extensions/nodeagent.raw", wanted=f"sha256-{'c' * 64}")), "x")


@pytest.mark.parametrize("target", ["/x", KEPT, f"{KEPT}/x.raw", f"{KEPT}/../{HASH}.raw", kept_at(HASH) + "x"])
def test_another_target_has_no_digest(target: str) -> None:
    assert digest_at(target) == ""
