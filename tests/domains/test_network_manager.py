# SPDX-License-Identifier: Apache-2.0
"""Which changes of NetworkManager's settings a restart is enough for, where the recommended policy applies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from nodeagent.core.plan.change import Action, ActionType, KeyChange, Plan, PolicySource
from nodeagent.core.plan.domain import UnitFailure
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.policy import DRAIN, REBOOT, merge, restart
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.core.plan.program import ProgramCheck, ProgramResult
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.domains import curable, default_policy, program_checks, reads, with_rules
from nodeagent.errors import Problem
from tests.support.configs import config

FILE = "/etc/NetworkManager/conf.d/90-site.conf"
MAIN = "/etc/NetworkManager/NetworkManager.conf"
VENDOR = "/usr/lib/NetworkManager/conf.d"
UNIT = "NetworkManager.service"
RECOMMENDED = Path(__file__).parents[2] / "systemd/usr/lib/nodeagent/policy-recommended.yaml"
POLICY = merge(default_policy(), with_rules(parse_policy(RECOMMENDED.read_bytes(), str(RECOMMENDED))))
OLD = (
    "[main]\ndns=none\nauth-polkit=true\n[logging]\nlevel=INFO\n"
    "[connection-a]\nipv6.ip6-privacy=0\n[connection-b]\nipv6.ip6-privacy=1\n"
)


CONNECTION = "[connection]\nid=a\ntype=ethernet\n[ipv4]\nmethod=auto\n"
PROFILE = "/etc/NetworkManager/system-connections/a.nmconnection"
HOST = {PROFILE: CONNECTION}


def planned(old: Mapping[str, str], new: Mapping[str, str], host: Mapping[str, str] = HOST) -> Plan:
    sides = [config(files={path: text.encode() for path, text in files.items()}) for files in (old, new)]
    view = HostView({path: text.encode() for path, text in host.items()})
    return make_plan(sides[0], sides[1], POLICY, host=view)


def word(plan: Plan) -> str:
    return " ".join(str(action.type) for action in plan.actions)


# The new content beside OLD, and the actions.
CONTENTS: dict[str, tuple[str, str]] = {
    "a level": (OLD.replace("INFO", "DEBUG"), "Restart"),
    "domains that are added to others": (OLD.replace("level=INFO\n", "level=INFO\ndomains+=DHCP4\n"), "Restart"),
    "a key that is removed": (OLD.replace("level=INFO\n", ""), "Restart"),
    "a section": (f"{OLD}[connectivity]\nenabled=false\n", "Restart"),
    "an empty section": (f"{OLD}[connectivity]\n", "None"),
    "the order of its keys": (OLD.replace("INFO\n", "DEBUG\nlevel=INFO\n"), "Restart"),
    "authorization": (OLD.replace("polkit=true", "polkit=false"), "Restart"),
    "a comment": (f"# why\n\n{OLD}", "None"),
    "other blanks": (OLD.replace("level=INFO", "  level = INFO\r"), "None"),
    "the last one counts": (OLD.replace("level=INFO", "level=INFO\nlevel=DEBUG"), "Restart"),
    "the same key in two sections of a name": (f"{OLD}[logging]\nlevel=DEBUG\n", "Restart"),
    "another key": (OLD.replace("dns=none", "dns=default"), "Drain Reboot"),
    "another key beside one": (OLD.replace("dns=none", "dns=default").replace("INFO", "DEBUG"), "Drain Reboot"),
    "a key of connections": (OLD.replace("privacy=0", "privacy=2"), "Drain Reboot"),
    "a section of devices": (f"{OLD}[device]\nmanaged=false\n", "Drain Reboot"),
    "interfaces to ignore": (f"{OLD}[keyfile]\nunmanaged-devices=interface-name:cali*\n", "Drain Reboot"),
    "an empty section of another name": (f"{OLD}[global-dns]\n", "Drain Reboot"),
    "the name in another section": (f"{OLD}[other]\nlevel=DEBUG\n", "Drain Reboot"),
    "a key that is no other one": (OLD.replace("level=INFO", "level=INFO\nlevel[de]=DEBUG"), "Drain Reboot"),
    "a semicolon begins no comment": (f"{OLD};x=1\n", "Drain Reboot"),
    "the order of sections": (
        OLD.replace("connection-a", "x").replace("connection-b", "connection-a").replace("x]", "connection-b]"),
        "Drain Reboot",
    ),
    "an order that counts": (
        OLD.replace("[connection-a]\nipv6.ip6-privacy=0\n", "") + "[connection-a]\nipv6.ip6-privacy=0\n",
        "Drain Reboot",
    ),
    "an order that counts, beside a level": (
        OLD.replace("INFO", "DEBUG").replace("[connection-a]\nipv6.ip6-privacy=0\n", "")
        + "[connection-a]\nipv6.ip6-privacy=0\n",
        "Drain Reboot",
    ),
    "a file that counts for some versions": (f"{OLD}[.config]\nenable=no\n", "Drain Reboot"),
    "no setting": (f"{OLD}level\n", "Drain Reboot"),
    "no section": (f"level=DEBUG\n{OLD}", "Drain Reboot"),
    "no end of a name": (OLD.replace("[logging]", "[logging"), "Drain Reboot"),
    "a section with a comment": (OLD.replace("[logging]", "[logging] # why"), "Drain Reboot"),
    "no text": (f"{OLD}x=\0\n", "Drain Reboot"),
    "a file that leaves": ("", "Drain Reboot"),
}


@pytest.mark.parametrize("path", [FILE, MAIN, "/etc/NetworkManager/conf.d/.hidden.conf"])
@pytest.mark.parametrize("case", CONTENTS)
def test_actions(case: str, path: str) -> None:
    new, wanted = CONTENTS[case]
    assert word(planned({path: OLD}, {path: new} if new else {})) == wanted


def test_bytes_that_are_no_text_differ() -> None:
    sides = [config(files={FILE: b"[main]\ndns=" + letter}) for letter in (b"\xfe", b"\xff")]
    assert word(make_plan(sides[0], sides[1], POLICY)) == "Drain Reboot"


# A new file of the name a.conf, another file of the host, and the actions.
HOSTS: dict[str, tuple[str, dict[str, str], str]] = {
    "no other file": ("[logging]\nlevel=DEBUG\n", {}, "Restart"),
    "an unlisted key": ("[main]\ndns=none\n", {}, "Drain Reboot"),
    "it hides keys that need no more": ("[main]\n", {f"{VENDOR}/a.conf": "[connectivity]\nuri=http://x\n"}, "Restart"),
    "it hides others": ("[logging]\nlevel=DEBUG\n", {f"{VENDOR}/a.conf": "[device]\nmanaged=1\n"}, "Drain Reboot"),
    "it hides one of this boot": ("[main]\n", {"/run/NetworkManager/conf.d/a.conf": "[x]\ny=1\n"}, "Drain Reboot"),
    "one of another name": ("[logging]\nlevel=DEBUG\n", {f"{VENDOR}/b.conf": "[device]\nmanaged=1\n"}, "Restart"),
    "it replaces one of the host": (
        "[device]\nmanaged=1\n[logging]\nlevel=DEBUG\n",
        {"/etc/NetworkManager/conf.d/a.conf": "[device]\nmanaged=1\n"},
        "Restart",
    ),
    "it replaces one with another key": (
        "[logging]\nlevel=DEBUG\n",
        {"/etc/NetworkManager/conf.d/a.conf": "[device]\nmanaged=1\n"},
        "Drain Reboot",
    ),
    "one that cannot be read": ("[main]\n", {f"{VENDOR}/a.conf": "x\n"}, "Drain Reboot"),
}


@pytest.mark.parametrize("case", HOSTS)
def test_files_of_the_host(case: str) -> None:
    new, host, wanted = HOSTS[case]
    assert word(planned({}, {"/etc/NetworkManager/conf.d/a.conf": new}, {**HOST, **host})) == wanted


# Files of the host besides a level that changes, and the actions.
CONNECTIONS: dict[str, tuple[dict[str, str], str]] = {
    "no host": ({}, "Drain Reboot"),
    "no profile": ({MAIN: ""}, "Restart"),
    "the other name of the type": ({PROFILE: CONNECTION.replace("ethernet", "802-3-ethernet")}, "Restart"),
    "a bond of this boot": ({"/run/NetworkManager/system-connections/b": "[connection]\ntype=bond \n"}, "Restart"),
    "Open vSwitch": ({"/run/NetworkManager/system-connections/b": "[connection]\ntype=ovs-bridge\n"}, "Drain Reboot"),
    "wifi": ({PROFILE: CONNECTION.replace("ethernet", "wifi")}, "Drain Reboot"),
    "no type": ({PROFILE: "[connection]\nid=a\n[ethernet]\n"}, "Drain Reboot"),
    "one that cannot be read": ({PROFILE: f"{CONNECTION}x\n"}, "Drain Reboot"),
    "a login": ({PROFILE: f"{CONNECTION}[802-1x]\neap=tls;\n"}, "Drain Reboot"),
    "a shared one": ({PROFILE: CONNECTION.replace("auto", "shared")}, "Drain Reboot"),
    "one of the image": ({"/usr/lib/NetworkManager/system-connections/b.nmconnection": "x\n"}, "Drain Reboot"),
    "a hidden file": ({PROFILE: CONNECTION, "/etc/NetworkManager/system-connections/.b": "x\n"}, "Restart"),
    "no profile but its data": ({"/run/NetworkManager/system-connections/b.nmmeta": "x\n"}, "Restart"),
    "one of RHEL 8": ({"/etc/sysconfig/network-scripts/ifcfg-eth0": "TYPE=Ethernet\n"}, "Drain Reboot"),
    "scripts of RHEL 8": ({f"/etc/sysconfig/network-scripts/{name}": "" for name in ("ifcfg-lo", "ifup")}, "Restart"),
    "another directory": ({MAIN: "[keyfile]\npath=/etc/x\n"}, "Drain Reboot"),
    "known plugins": ({MAIN: "[main]\nplugins=ifupdown,keyfile\n[ifupdown]\nmanaged=false\n"}, "Restart"),
    "another plugin": ({MAIN: "[main]\nplugins=keyfile,x\n"}, "Drain Reboot"),
    "one more plugin": ({f"{VENDOR}/x.conf": "[main]\nplugins+=x\n"}, "Drain Reboot"),
    "connections of ifupdown": ({MAIN: "[ifupdown]\nmanaged=true\n"}, "Drain Reboot"),
}


@pytest.mark.parametrize("case", CONNECTIONS)
def test_connections_that_would_end(case: str) -> None:
    host, wanted = CONNECTIONS[case]
    assert word(planned({FILE: "[logging]\nlevel=INFO\n"}, {FILE: "[logging]\nlevel=DEBUG\n"}, host)) == wanted
    # Where nothing changes, no restart is needed.
    assert word(planned({FILE: "[main]\n"}, {FILE: "# why\n"}, host)) == "None"


def test_a_plan_shows_nothing_of_a_profile() -> None:
    host = {PROFILE: "[connection]\ntype=wifi\n[wifi-security]\npsk=secret\n"}
    (change,) = planned({}, {FILE: "[logging]\nlevel=DEBUG\n"}, host).changes
    assert change.keys[0].why == f'{PROFILE} is a connection of the type "wifi", which may end with a restart'
    assert "secret" not in str(change)


def test_other_files_are_not_read() -> None:
    for path in (f"{FILE}.bak", "/etc/NetworkManager/conf.d/old/a.conf"):
        assert word(planned({}, {path: "[main]\ndns=none\n"})) == "None"
    assert planned({}, {PROFILE: CONNECTION}).changes[0].policy is PolicySource.NONE


def test_the_plan_has_the_keys() -> None:
    new = OLD.replace("INFO", "DEBUG") + "[connectivity]\nuri=http://a:b@example.com\n[device]\nmanaged=1\n"
    (change,) = planned({FILE: OLD}, {FILE: new}).changes
    unknown = "is not known to take effect with a restart"
    assert change.actions == (DRAIN, REBOOT)
    assert change.keys == (
        KeyChange(FILE, "[logging] level", '"INFO"', '"DEBUG"', (restart(UNIT),)),
        KeyChange(FILE, "[connectivity] uri", "", "(not shown)", (restart(UNIT),)),
        KeyChange(FILE, "[device]", "", "", (DRAIN, REBOOT), unknown),
        KeyChange(FILE, "[device] managed", "", '"1"', (DRAIN, REBOOT), unknown),
    )


def check(old: str, new: str) -> ProgramCheck:
    was, now = (config(files={FILE: text.encode()}) for text in (old, new))
    (found,) = program_checks(Sides(was, now))
    return found


def test_networkmanager_reads_the_files_before_they_are_written() -> None:
    """Also where no policy has an entry for them: a host whose NetworkManager does not start has no network."""
    found = check(OLD, f"{OLD}x\n")
    assert found.tree == {MAIN: b"", FILE: f"{OLD}x\n".encode()}
    assert found.control is not None
    assert found.control.tree == {MAIN: b"", FILE: OLD.encode()}
    message = f"Failed to read configuration: {FILE}: Key file contains line “password x” which is not a pair"
    text = "NetworkManager cannot read it, and would not start"
    assert list(found.judge(ProgramResult(7, [message]))) == [Problem(FILE, text)]
    assert list(found.judge(ProgramResult(7, ["x"]))) == [Problem(MAIN, text)]
    for status in (0, 1):
        assert list(found.judge(ProgramResult(status, [message]))) == []


def test_a_reboot_is_no_cure() -> None:
    keys = planned({FILE: OLD}, {FILE: OLD.replace("INFO", "DEBUG")}).changes[0].keys
    assert not curable(UnitFailure(UNIT, "exit-code", keys))
    assert curable(UnitFailure(UNIT, "exit-code"))
    assert curable(UnitFailure("x.service", "exit-code", keys))


def test_what_is_read() -> None:
    changed = Sides(config(), config(files={FILE: OLD.encode()}))
    found = set(reads(changed))
    assert {MAIN, f"{VENDOR}/", "/run/NetworkManager/conf.d/", "/etc/NetworkManager/conf.d/"} <= found
    assert {f"{top}/NetworkManager/system-connections/" for top in ("/etc", "/run", "/usr/lib")} <= found
    assert not any("NetworkManager" in path for path in reads(Sides(changed.new, changed.new)))


def test_the_entries_have_the_mildest_action() -> None:
    files = parse_policy(RECOMMENDED.read_bytes()).files
    for path in (MAIN, "/etc/NetworkManager/conf.d"):
        assert files[path].actions == (Action(ActionType.RESTART, UNIT),)
