# SPDX-License-Identifier: Apache-2.0
"""The SELinux module as text: each rule has its reason, and none gives what the daemon must not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "packaging/selinux/nodeagent.cil"
UNIT = ROOT / "systemd/usr/lib/systemd/system/nodeagent.service"


@pytest.fixture(scope="module")
def module() -> str:
    return MODULE.read_text()


def paragraphs(text: str) -> Iterator[list[str]]:
    for part in re.split(r"\n\s*\n", text.strip()):
        yield part.splitlines()


def test_each_paragraph_gives_a_reason(module: str) -> None:
    for lines in paragraphs(module):
        comment = [line for line in lines if line.startswith(";")]
        assert lines[0].startswith("; "), lines[0]
        assert comment[-1].endswith((".", ":")), "a whole sentence"
        assert len(comment) == len(lines) or len(lines) - len(comment) <= 15, (
            f"too many rules for one reason: {lines[0]}"
        )


def rules(module: str) -> str:
    return re.sub(r";.*", "", module)


@pytest.mark.parametrize(
    "word",
    [
        *("execmem", "execstack", "execheap", "execmod", "ptrace", "sys_admin", "sys_module", "load_policy"),
        *("typepermissive", "unconfined_domain", "setenforce", "setbool", "mac_admin", "can_load_policy"),
    ],
)
def test_what_the_daemon_never_gets(module: str, word: str) -> None:
    assert word not in rules(module)


def test_the_capabilities_are_those_of_the_unit(module: str) -> None:
    (granted,) = re.findall(r"\(capability \(([a-z_ ]+)\)\)", rules(module))
    (line,) = re.findall(r"^CapabilityBoundingSet=(.+)$", UNIT.read_text(), re.MULTILINE)
    of_the_unit = {name.removeprefix("CAP_").lower() for name in line.split()}
    # The kernel asks for it before dac_override, which gives more.
    assert set(granted.split()) == of_the_unit | {"dac_read_search"}


def test_the_program_cannot_be_replaced_by_the_daemon(module: str) -> None:
    (kept,) = re.findall(r"nodeagent_managed \(and .+\(not (.+)\)\)\)", rules(module))
    assert "nodeagent_exec_t" in kept
    block = module[module.index("(type nodeagent_exec_t)") :].partition("\n\n")[0]
    assert "non_security_file_type" not in block


def test_variables_of_the_firmware_are_for_reading_only(module: str) -> None:
    found = [line.strip() for line in rules(module).splitlines() if "efivarfs_t" in line]
    assert found == ["(call nodeagent_read (efivarfs_t)))"]


def helper_rules(module: str) -> str:
    """Return the rules that name a helper domain, and the macros for them."""
    lines, inside = list[str](), False
    for line in rules(module).splitlines():
        inside = line.startswith("(macro nodeagent_helper") or (inside and line.startswith(" "))
        if inside or "nodeagent_extensions_t" in line or "nodeagent_bootstrap_t" in line:
            lines.append(line)
    return "\n".join(lines)


@pytest.mark.finding("attack: the unit without rights", "Each helper unit has an SELinux domain of its own.")
@pytest.mark.parametrize("name", ["nodeagent-extensions", "nodeagent-bootstrap"])
def test_the_helper_units_have_domains_of_their_own(module: str, name: str) -> None:
    (path,) = [*ROOT.glob(f"systemd/**/{name}.service"), *ROOT.glob(f"nodeagent/features/*/tree/**/{name}.service")]
    unit = path.read_text()
    # The sign lets the unit start without the module.
    (context,) = re.findall(r"^SELinuxContext=-system_u:system_r:(\w+):s0$", unit, re.MULTILINE)
    assert context == f"{name.replace('-', '_')}_t"
    assert f"(type {context})" in module
    assert f"(call nodeagent_helper ({context}))" in module


@pytest.mark.finding(
    "attack: the unit without rights",
    "The domains of the helper units have no capability, no bus and no file of security.",
)
@pytest.mark.parametrize(
    "word",
    [
        "capability",
        "dbus",
        "connectto",
        "shadow",
        "nodeagent_managed",
        "(security_file_type",
        "(system (",
        "(service (",
    ],
)
def test_what_the_helper_units_never_get(module: str, word: str) -> None:
    assert word not in helper_rules(module)
