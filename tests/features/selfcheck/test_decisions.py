# SPDX-License-Identifier: Apache-2.0
"""Each check of the installation as a table of facts and the expected result."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.enumerated import enumerated
from nodeagent.core.self_check import NotRead, OsService, ReachFacts, SelfCheck, reach_check
from nodeagent.features.selfcheck.decide.bus import (
    ACTIONS,
    UNIT_FILE,
    NameFacts,
    PolkitDecision,
    PolkitFacts,
    UnitFacts,
    bus_checks,
    unit_checks,
)
from nodeagent.features.selfcheck.decide.files import (
    DIRECTORIES,
    DOMAIN,
    LABELLED,
    PROGRAM_TYPE,
    FileFacts,
    FileKind,
    PathFacts,
    catalog_check,
    domain_check,
    file_checks,
    label_check,
)
from nodeagent.features.selfcheck.decide.os_fields import OsFacts, os_check
from nodeagent.features.selfcheck.decide.reach import denied, is_redirected, registry_of
from nodeagent.features.selfcheck.decide.versions import RunningFacts, VersionFacts, version_checks

SYSTEMD = Path(__file__).parents[3] / "systemd/usr"
UNIT = UnitFacts(UNIT_FILE, "enabled", "enabled", "active", pid=7)
NOT_HERE = NotRead("not here")
BROKEN = NotRead("no answer", "run it again", fault=True)


def judged(checks: Iterable[SelfCheck]) -> dict[str, str]:
    """Return the results, after checking that each failure names its way out."""
    found = list(checks)
    assert all(check.remedy for check in found if check.result == "failed"), found
    return {check.id: check.result.value for check in found}


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (UNIT, {}),
        (replace(UNIT, path="/lib/systemd/system/nodeagent.service"), {}),
        (replace(UNIT, path="/etc/systemd/system/nodeagent.service"), {"unit.file": "failed"}),
        (replace(UNIT, outdated=True), {"unit.file": "failed"}),
        (replace(UNIT, enabled="disabled"), {"unit.enabled": "failed"}),
        (replace(UNIT, enabled="enabled-runtime"), {"unit.enabled": "failed"}),
        (replace(UNIT, enabled="disabled", wanted=True), {}),
        (replace(UNIT, enabled="masked", wanted=True, masked=True), {"unit.file": "failed", "unit.enabled": "failed"}),
        (replace(UNIT, preset="disabled"), {"unit.preset": "failed"}),
        (replace(UNIT, preset=""), {"unit.preset": "skipped"}),
        (replace(UNIT, active="reloading"), {}),
        (replace(UNIT, active="activating"), {"unit.active": "failed"}),
        (replace(UNIT, active="inactive"), {"unit.active": "failed"}),
        (replace(UNIT, active="failed"), {"unit.active": "failed"}),
        (replace(UNIT, active=""), {"unit.active": "skipped"}),
        (
            UnitFacts("/etc/systemd/system/nodeagent.service", "masked", "enabled", "inactive", masked=True),
            {"unit.file": "failed", "unit.enabled": "failed", "unit.active": "failed"},
        ),
        (
            UnitFacts("", ""),
            {"unit.file": "failed", "unit.enabled": "skipped", "unit.preset": "skipped", "unit.active": "skipped"},
        ),
        (BROKEN, dict.fromkeys(("unit.file", "unit.enabled", "unit.preset", "unit.active"), "failed")),
    ],
)
def test_unit(unit: Any, expected: dict[str, str]) -> None:
    fine = dict.fromkeys(("unit.file", "unit.enabled", "unit.preset", "unit.active"), "ok")
    assert judged(unit_checks(unit)) == fine | expected


OWNER = NameFacts(7, 0, "1")
DEFAULTS = dict.fromkeys(ACTIONS, ("auth_admin", "auth_admin", "auth_admin"))
ALLOWED = dict.fromkeys(ACTIONS, PolkitDecision(allowed=True, challenge=False))
ASKS = dict.fromkeys(ACTIONS, PolkitDecision(allowed=False, challenge=True))
POLKIT = PolkitFacts(DEFAULTS, DEFAULTS, ALLOWED)


@pytest.mark.parametrize(
    ("name", "unit", "expected"),
    [
        (OWNER, UNIT, "ok"),
        (OWNER, NOT_HERE, "ok"),
        (NameFacts(), UNIT, "failed"),
        (NameFacts(), replace(UNIT, active="inactive"), "skipped"),
        (NameFacts(7, 1000, "1"), UNIT, "failed"),
        (NameFacts(8, 0, "1"), UNIT, "failed"),
        (NameFacts(7, 0, ""), UNIT, "failed"),
        (NOT_HERE, UNIT, "skipped"),
    ],
)
def test_name(name: Any, unit: Any, expected: str) -> None:
    assert judged(bus_checks(True, name, POLKIT, unit, root=True))["dbus.name"] == expected


@pytest.mark.parametrize(("policy", "expected"), [(True, "ok"), (False, "failed"), (BROKEN, "failed")])
def test_policy_of_the_bus(policy: Any, expected: str) -> None:
    assert judged(bus_checks(policy, OWNER, POLKIT, UNIT, root=True))["dbus.policy"] == expected


@pytest.mark.parametrize(
    ("polkit", "root", "actions", "decisions"),
    [
        (POLKIT, True, "ok", "ok"),
        (replace(POLKIT, decisions=ASKS), False, "ok", "ok"),
        (replace(POLKIT, decisions=ASKS), True, "ok", "failed"),
        (replace(POLKIT, decisions={}), False, "ok", "failed"),
        (replace(POLKIT, known={}), True, "failed", "ok"),
        (replace(POLKIT, installed={}), True, "failed", "ok"),
        (replace(POLKIT, known=dict.fromkeys(ACTIONS, ("yes", "yes", "yes"))), True, "failed", "ok"),
        (NOT_HERE, True, "skipped", "skipped"),
        (BROKEN, True, "failed", "failed"),
    ],
)
def test_polkit(polkit: Any, root: bool, actions: str, decisions: str) -> None:
    found = judged(bus_checks(True, OWNER, polkit, UNIT, root=root))
    assert (found["polkit.actions"], found["polkit.decisions"]) == (actions, decisions)


def test_the_actions_are_those_of_the_package() -> None:
    tree = ET.parse(SYSTEMD / "share/polkit-1/actions/org.nodeagent.agent1.policy")
    assert {action.get("id") for action in tree.iterfind("action")} == ACTIONS


STATE = PathFacts("/s", FileKind.DIRECTORY, mode=0o700)
STORE = PathFacts("/s/state.db", FileKind.FILE, mode=0o600)
FILES = FileFacts(
    {"/usr/bin/nodeagent": PathFacts("/usr/bin/nodeagent", FileKind.FILE)},
    {path: PathFacts(path, FileKind.DIRECTORY) for path in DIRECTORIES},
    ("/s", STATE),
    ("/s/state.db", STORE),
)


def package(found: PathFacts | None) -> FileFacts:
    return replace(FILES, package={"/usr/bin/nodeagent": found})


def directory(found: Any, path: str = "/etc/nodeagent") -> FileFacts:
    return replace(FILES, directories={**FILES.directories, path: found})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (FILES, {}),
        (package(None), {"files.package": "failed"}),
        (package(PathFacts("/x", FileKind.FILE, uid=1)), {"files.package": "failed"}),
        (package(PathFacts("/x", FileKind.FILE, mode=0o666)), {"files.package": "failed"}),
        (package(PathFacts("/x", FileKind.LINK, mode=0o777)), {}),
        (replace(FILES, package=NOT_HERE), {"files.package": "skipped"}),
        (directory(None), {"files.directories": "failed"}),
        (directory(NOT_HERE), {"files.directories": "skipped"}),
        (directory(PathFacts("/etc/nodeagent", FileKind.LINK)), {"files.directories": "failed"}),
        (directory(PathFacts("/etc/nodeagent", FileKind.DIRECTORY, mode=0o777)), {"files.directories": "failed"}),
        (replace(FILES, state=("/s", None)), {"state.directory": "failed"}),
        (replace(FILES, state=("/s", replace(STATE, mode=0o755))), {"state.directory": "failed"}),
        (replace(FILES, state=("/s", replace(STATE, gid=5))), {"state.directory": "failed"}),
        (replace(FILES, state=("/s", replace(STATE, kind=FileKind.LINK))), {"state.directory": "failed"}),
        (replace(FILES, store=("/s/state.db", NOT_HERE)), {"state.store": "skipped"}),
        (replace(FILES, store=("/s/state.db", replace(STORE, mode=0o640))), {"state.store": "failed"}),
        (NOT_HERE, dict.fromkeys(("files.package", "files.directories", "state.directory", "state.store"), "skipped")),
    ],
)
def test_files(facts: Any, expected: dict[str, str]) -> None:
    fine = dict.fromkeys(("files.package", "files.directories", "state.directory", "state.store"), "ok")
    assert judged(file_checks(facts, booted=True, running=True)) == fine | expected


def test_an_image_has_no_state_and_no_directories_in_memory() -> None:
    directories = {path: None if path.startswith("/run/") else found for path, found in FILES.directories.items()}
    facts = replace(FILES, directories=directories, state=("/s", None), store=("/s/state.db", None))
    found = judged(file_checks(facts, booted=False, running=False))
    assert found == {
        "files.package": "ok",
        "files.directories": "ok",
        "state.directory": "skipped",
        "state.store": "skipped",
    }


def test_labels() -> None:
    def labelled(label: str) -> list[PathFacts]:
        return [PathFacts("/x", "", label=label, wanted="system_u:object_r:bin_t:s0")]

    # A relabelling keeps the user of a label, and the range differs between policies.
    assert label_check(labelled("unconfined_u:object_r:bin_t:s0:c1")).result == "ok"
    assert label_check(labelled("system_u:object_r:usr_t:s0")).result == "failed"
    assert label_check(labelled("")).result == "failed"
    assert label_check(NotRead("not applicable")).result == "skipped"


@pytest.mark.parametrize(
    ("domain", "wanted", "result"),
    [
        ("nodeagent_t", "nodeagent_exec_t", "ok"),
        # Without the module, the host runs it as a service that is not confined.
        ("unconfined_service_t", "bin_t", "ok"),
        ("unconfined_service_t", "nodeagent_exec_t", "failed"),
    ],
)
def test_the_domain(domain: str, wanted: str, result: str) -> None:
    paths = [PathFacts("/usr/bin/nodeagent", "", wanted=f"system_u:object_r:{wanted}:s0")]
    check = domain_check(f"system_u:system_r:{domain}:s0", paths)
    assert (check.id, check.result) == ("selinux.domain", result)
    assert domain in check.message


def test_a_domain_that_is_not_known() -> None:
    assert domain_check(NotRead("not applicable"), NotRead("not applicable")).result == "skipped"
    assert domain_check("u:r:init_t:s0", NotRead("no policy")).result == "ok"


def test_catalog() -> None:
    assert catalog_check({"a", "b"}, ["a", "b"]).result == "ok"
    assert catalog_check({"a"}, ["a", "b"]).result == "failed"
    assert catalog_check(NOT_HERE, ["a"]).result == "skipped"


VERSIONS = VersionFacts(
    {"python": "3.14.3"}, "source", {"python": "3.14.3"}, {"systemd": "257 (257.7-1)", "glibc": "2.36"}
)


@pytest.mark.finding(
    "users: the interpreter of the package",
    "The install page and the self-check name the origin of the interpreter; that of tests is a warning.",
)
@pytest.mark.parametrize(
    ("found", "running", "expected"),
    [
        (VERSIONS, RunningFacts("1"), ["ok", "ok", "ok", "ok"]),
        (VERSIONS, RunningFacts("0"), ["ok", "ok", "ok", "failed"]),
        (VERSIONS, RunningFacts("1", "/usr/lib/nodeagent/x"), ["ok", "ok", "ok", "failed"]),
        (VERSIONS, NOT_HERE, ["ok", "ok", "ok", "skipped"]),
        (replace(VERSIONS, listed={"python": "3.14.2"}), RunningFacts("1"), ["failed", "ok", "ok", "ok"]),
        (replace(VERSIONS, listed={}), RunningFacts("1"), ["failed", "ok", "ok", "ok"]),
        (
            replace(VERSIONS, listed=NOT_HERE, interpreter=NOT_HERE),
            RunningFacts("1"),
            ["skipped", "skipped", "ok", "ok"],
        ),
        (replace(VERSIONS, interpreter="host"), RunningFacts("1"), ["ok", "ok", "ok", "ok"]),
        (replace(VERSIONS, interpreter=""), RunningFacts("1"), ["ok", "ok", "ok", "ok"]),
        (replace(VERSIONS, interpreter="testing"), RunningFacts("1"), ["ok", "warning", "ok", "ok"]),
        (replace(VERSIONS, host={"systemd": "249"}), RunningFacts("1"), ["ok", "ok", "failed", "ok"]),
        (replace(VERSIONS, host={"glibc": "2.28"}), RunningFacts("1"), ["ok", "ok", "failed", "ok"]),
        (replace(VERSIONS, host={}), RunningFacts("1"), ["ok", "ok", "skipped", "ok"]),
        (BROKEN, RunningFacts("1"), ["failed", "failed", "failed", "ok"]),
    ],
)
def test_versions(found: Any, running: Any, expected: list[str]) -> None:
    assert list(judged(version_checks("1", found, running)).values()) == expected


def test_reach() -> None:
    assert reach_check("reach.lease", ReachFacts("lease")).result == "ok"
    assert reach_check("reach.lease", ReachFacts("lease", "refused")).result == "failed"
    assert reach_check("reach.lease", ReachFacts("lease", "refused")).remedy
    assert reach_check("reach.lease", NOT_HERE).result == "skipped"
    assert denied(("get", "patch"), {"get": True, "patch": True}) == ""
    assert "patch" in denied(("get", "patch"), {"get": True})


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        (f"quay.io/fedora/fedora-coreos@sha256:{'a' * 64}", "quay.io"),
        (f"localhost:5000/os@sha256:{'a' * 64}", "localhost:5000"),
        (f"os/image@sha256:{'a' * 64}", ""),
        ("quay.io/os:latest", ""),
        (f"ostree://fedora:branch@{'a' * 64}", ""),
        ("", ""),
    ],
)
def test_registry(image: str, registry: str) -> None:
    assert registry_of(image) == registry


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, False),
        ({"registry": "nonsense"}, False),
        ({"registry": ["nonsense", {}]}, False),
        ({"registry": [{"location": "other.io", "mirror": []}]}, False),
        ({"registry": [{"location": "quay.io/os"}]}, True),
        ({"registry": [{"prefix": "quay.io", "location": "mirror.corp"}]}, True),
        ({"registry": [{"prefix": "*.io"}]}, True),
        ({"registry": [{"prefix": "*.com"}]}, False),
    ],
)
def test_redirected(document: Any, expected: bool) -> None:
    assert is_redirected("quay.io", [document]) is expected


def test_long_lists_are_cut() -> None:
    assert enumerated("abc") == "a, b, c"
    assert enumerated("abcde") == "a, b, c and 2 more"


@pytest.mark.finding(
    "OS: fields in the self-check", "The self-check names the OS fields that the host serves, or why it refuses them."
)
@pytest.mark.parametrize(
    ("found", "result", "words"),
    [
        (OsFacts(OsService("rpm-ostree", "x.service"), fips=True), "ok", ("rpm-ostree serves", "has it on")),
        (
            OsFacts(OsService("ostree container", "x.service", refused=("extensions", "kernelType"))),
            "ok",
            (
                "serves baseOSExtensionsContainerImage, kernelArguments, osImageURL;",
                "extensions, kernelType are refused",
            ),
        ),
        (
            OsFacts(OsService("rpm-ostree", "x.service", others=("ostree container",))),
            "ok",
            ("rpm-ostree, or ostree container where that has staged an OS before", "serves"),
        ),
        (
            OsFacts(OsService("", "", "this host has none", "remove it")),
            "skipped",
            ("are refused: this host", "it off"),
        ),
        (NOT_HERE, "skipped", ("not here",)),
        (BROKEN, "failed", ("no answer",)),
    ],
)
def test_os_fields(found: OsFacts | NotRead, result: str, words: tuple[str, ...]) -> None:
    check = os_check(found)
    assert judged([check]) == {"os.fields": result}
    fields = ("osImageURL", "kernelArguments", "kernelType", "extensions", "baseOSExtensionsContainerImage", "fips")
    assert all(word in check.message for word in (*words, *(fields if isinstance(found, OsFacts) else ())))


def test_the_names_are_those_of_the_selinux_module() -> None:
    module = (SYSTEMD.parents[1] / "packaging/selinux/nodeagent.cil").read_text()
    assert f"(type {DOMAIN})" in module
    assert f"(type {PROGRAM_TYPE})" in module
    assert f'(filecon "/usr/bin/nodeagent" file (system_u object_r {PROGRAM_TYPE} ' in module
    assert "/usr/bin/nodeagent" in LABELLED
