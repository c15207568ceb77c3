# SPDX-License-Identifier: Apache-2.0
"""The installed files agree with the code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from nodeagent import features
from nodeagent.agent.report.under_way import PATH as UNDER_WAY
from nodeagent.domains import own_units
from nodeagent.report.views.registry import message_ids, views
from nodeagent.settings.check import check_values
from nodeagent.settings.load import merge, read
from nodeagent.settings.schema import Settings, flatten, keys, part_keys
from nodeagent.update.ports.events import ConfigRefused, HostDegraded, RevertStarted, StepFailed, UpdateWaiting
from tests.support import examples
from tests.support.needs import needs

ROOT = Path(__file__).parents[2]
TREE = ROOT / "systemd/usr"
UNIT = TREE / "lib/systemd/system/nodeagent.service"
# Those of the base, and those of features.
UNITS = {
    path.name: path
    for path in [
        *TREE.glob("lib/systemd/system/*.*"),
        *ROOT.glob("nodeagent/features/*/tree/usr/lib/systemd/system/*.*"),
    ]
}
CATALOGS = [*TREE.glob("lib/systemd/catalog/*"), *ROOT.glob("nodeagent/features/*/tree/usr/lib/systemd/catalog/*")]
CATALOG = "\n".join(path.read_text() for path in CATALOGS)
DEFAULTS = TREE / "lib/nodeagent/config.d/10-defaults.yaml"
EVERY_DEFAULT = [DEFAULTS, *ROOT.glob("nodeagent/features/*/tree/usr/lib/nodeagent/config.d/*.yaml")]
BUS_POLICY = TREE / "share/dbus-1/system.d/org.nodeagent.Agent1.conf"
# A line of the table in the documentation: the name and the exposure.
EXPLAINED = re.compile(r"^\| `([^`]+)` \| (0\.\d) \| ", re.MULTILINE)
POLKIT = TREE / "share/polkit-1/actions/org.nodeagent.agent1.policy"


def test_the_shipped_defaults_are_the_built_in_ones() -> None:
    of_features = {name: [*map(part_keys, door.settings)] for name, door in features.doors().items() if door.settings}
    for name, tables in of_features.items():
        declared = {key for table in tables for key in table}
        assert set(read(feature_defaults(name))) == declared, f"each setting of {name} is in its file of defaults"
    merged = merge([read(DEFAULTS), *map(read, map(feature_defaults, of_features))])
    assert set(merged) == set(keys()), f"each setting is in {DEFAULTS.name} with its default and its risk, and no other"
    assert flatten(check_values(merged)) == flatten(Settings())


def feature_defaults(name: str) -> Path:
    return ROOT / f"nodeagent/features/{name}/tree/usr/lib/nodeagent/config.d/10-{name.replace('_', '-')}.yaml"


@pytest.mark.parametrize(
    "path",
    [DEFAULTS, *ROOT.glob("nodeagent/features/*/tree/usr/lib/nodeagent/config.d/*.yaml")],
    ids=lambda path: path.name,
)
def test_every_default_is_commented(path: Path) -> None:
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"\s*[a-z_]+: \S", line):
            assert lines[number - 1].lstrip().startswith("#"), line


def test_the_catalog_explains_every_message() -> None:
    entries = re.findall(r"^-- ([0-9a-f]{32})\nSubject: (.+)\n((?:[A-Z][A-Za-z-]+: .+\n)+)\n(.+)", CATALOG, re.M)
    ids = sorted(ident for ident, *_ in entries)
    assert ids == sorted(message_ids()), "each MESSAGE_ID has an entry in the catalog, and no other"
    assert all("Defined-By: nodeagent" in headers for _, _, headers, _ in entries)


def test_the_catalog_shows_what_to_do() -> None:
    """The hint comes with the entry; these kinds always have a reason."""
    entries = dict(re.findall(r"^-- ([0-9a-f]{32})\n(.*?)(?=^-- |\Z)", CATALOG, re.M | re.S))
    for kind in (HostDegraded, ConfigRefused, UpdateWaiting, StepFailed, RevertStarted):
        assert entries[views()[kind].id].rstrip().endswith("What now: @NODEAGENT_HINT@")


@needs("journalctl")
def test_systemd_reads_the_catalog(tmp_path: Path) -> None:
    (tmp_path / "var/lib/systemd/catalog").mkdir(parents=True)
    catalogs = tmp_path / "usr/lib/systemd/catalog"
    catalogs.mkdir(parents=True)
    for path in CATALOGS:
        shutil.copy(path, catalogs)
    subprocess.run(["journalctl", f"--root={tmp_path}", "--update-catalog"], check=True, timeout=20)
    listed = subprocess.run(
        ["journalctl", f"--root={tmp_path}", "--list-catalog"], check=True, timeout=20, capture_output=True, text=True
    )
    assert len(listed.stdout.splitlines()) == len(message_ids())


@pytest.mark.finding(
    "attack: configs against the agent",
    "The unit that reports a boot without an agent needs no enablement and no agent.",
)
def test_the_unit_that_reports_a_boot_without_an_agent_is_always_on() -> None:
    link = UNIT.with_name("timers.target.wants") / "nodeagent-absent.timer"
    assert link.is_symlink()
    assert link.resolve() == UNIT.with_name("nodeagent-absent.timer").resolve()
    text = UNIT.with_name("nodeagent-absent.service").read_text()
    assert f"ConditionPathExists={UNDER_WAY}\n" in text
    assert f"ExecStart=/usr/bin/cat {UNDER_WAY}\n" in text, "neither the agent nor its interpreter runs"
    assert {path.name for path in UNIT.parent.glob("nodeagent-absent.*")} == own_units.REPORTING


@needs("systemd-analyze")
@pytest.mark.parametrize("name", ["nodeagent.service", "nodeagent-absent.service", "nodeagent-absent.timer"])
def test_systemd_has_nothing_against_the_unit(name: str) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(UNIT.with_name(name))],
        check=False,
        timeout=30,
        capture_output=True,
        text=True,
    )
    ours = [line for line in done.stderr.splitlines() if "nodeagent" in line and "is not executable" not in line]
    assert not ours


def security(unit: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", *options, str(unit)]
    return subprocess.run(command, check=False, timeout=30, capture_output=True, text=True)


@needs("systemd-analyze")
@pytest.mark.parametrize(
    ("name", "tenths"),
    [
        ("nodeagent", 34),
        ("nodeagent-bootstrap", 15),
        ("nodeagent-bootstrap-prepare", 11),
        ("nodeagent-bootstrap-install", 11),
        *examples.listed("HARDENED"),
    ],
)
def test_the_unit_stays_hardened(name: str, tenths: int) -> None:
    """The figures of systemd 252; newer ones know more to find fault with, and have other weights."""
    done = security(UNITS[f"{name}.service"], f"--threshold={tenths if systemd_version() == 252 else 35}")
    assert done.returncode == 0, done.stdout.splitlines()[-1:]


@pytest.mark.finding(
    "attack: the unit without rights", "Each helper unit with a network has a user of its own, and root has no network."
)
def test_no_helper_unit_is_root_with_a_network() -> None:
    units = {name: path.read_text() for name, path in UNITS.items() if fnmatch(name, "nodeagent-*.service")}
    programs = {name: text for name, text in units.items() if "ExecStart=/usr/bin/nodeagent " in text}
    assert {name for name, text in programs.items() if "\nDynamicUser=yes\n" in text} == {
        "nodeagent-bootstrap.service",
        *examples.listed("WITH_NETWORK"),
    }
    for name, text in programs.items():
        assert ("\nDynamicUser=yes\n" in text) != ("\nPrivateNetwork=yes\n" in text), name
        assert "\nCapabilityBoundingSet=\n" in text, name


@needs("systemd-analyze")
def test_the_docs_explain_each_line_that_stays() -> None:
    page = (ROOT / "docs/explanation/security.md").read_text()
    explained = {name.replace("\\|", "|"): float(number) for name, number in EXPLAINED.findall(page)}
    lines = json.loads(security(UNIT, "--json=short").stdout)
    # "User=/DynamicUser=" is in the table under its first name.
    found = {line["name"].split("=/")[0].rstrip("="): line["exposure"] for line in lines if line["exposure"]}
    assert found.keys() <= explained.keys()
    if systemd_version() == 252:
        assert {name: float(exposure) for name, exposure in found.items()} == explained


def systemd_version() -> int:
    printed = subprocess.run(["systemd-analyze", "--version"], check=True, timeout=30, capture_output=True, text=True)
    return int(printed.stdout.split()[1])


def test_only_root_may_be_the_agent() -> None:
    policies = {p.get("user") or p.get("context"): p for p in ET.parse(BUS_POLICY).getroot().findall("policy")}
    assert policies["root"].find("allow[@own='org.nodeagent.Agent1']") is not None
    assert all(rule.get("own") is None for rule in policies["default"])
    assert policies["default"].find("allow[@send_destination='org.nodeagent.Agent1']") is not None


def test_no_change_of_the_host_without_a_password() -> None:
    actions = {action.get("id"): action for action in ET.parse(POLKIT).getroot().findall("action")}
    names = (
        "apply",
        "cancel",
        "diff",
        "etcd-member",
        "keep",
        "maintenance",
        "power-off",
        "read-secrets",
        "reboot",
        "reload",
        "rollback",
        "verify",
    )
    assert set(actions) == {f"org.nodeagent.agent1.{name}" for name in names}
    for name, action in actions.items():
        answers = {rule.text for rule in action.iterfind("defaults/*")}
        assert answers <= {"auth_admin", "auth_admin_keep"} or name == "org.nodeagent.agent1.verify"


def test_the_yaml_has_no_surprises() -> None:
    """A value such as `off` would be read as false."""
    assert yaml.safe_load(DEFAULTS.read_text())["on_failure"] == "revert"


def test_the_daemon_sees_the_running_kernel() -> None:
    """Without its signatures, it is unknown whether the bootloader starts the next kernel. It cannot load modules."""
    lines = UNIT.read_text().splitlines()
    assert "ProtectKernelModules=yes" not in lines
    capabilities = next(line for line in lines if line.startswith("CapabilityBoundingSet="))
    assert "CAP_SYS_MODULE" not in capabilities
    assert "SystemCallFilter=@system-service" in lines
