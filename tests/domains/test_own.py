# SPDX-License-Identifier: Apache-2.0
"""A config that would leave the host without its agent is refused."""

from __future__ import annotations

import pytest

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry
from nodeagent.domains import own_units, validate

SYSTEM = "/etc/systemd/system"
UNIT = f"{SYSTEM}/nodeagent.service"
DROPIN = "/etc/systemd/system/nodeagent.service.d/50-site.conf"
BUS = "/etc/dbus-1/system.d/org.nodeagent.Agent1.conf"
GOOD_UNIT = "[Unit]\nDescription=x\n[Service]\nExecStart=/usr/bin/nodeagent daemon\n"


def refusals(*entries: FileEntry | UnitEntry) -> list[str]:
    files = {entry.path: entry for entry in entries if isinstance(entry, FileEntry)}
    units = {entry.name: entry for entry in entries if isinstance(entry, UnitEntry)}
    new = MachineConfig("new", files=files, units=units)
    found = validate(MachineConfig("old"), new)
    assert validate(new, new) == ()
    return [f"{problem.path}: {problem.message}" for problem in found]


@pytest.mark.finding(
    "daemon: a start with damaged files",
    "A config that masks, empties or breaks our unit, the bus or the first targets of a boot is refused: by a unit, a"
    " drop-in (of a type of units, too), a policy of the bus, or actions that polkit cannot read. Rules of polkit are"
    " programs and are not checked: root needs none of them.",
)
@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        (UNIT, "", "mask"),
        (UNIT, "\n \n", "mask"),
        (UNIT, GOOD_UNIT.replace("/usr/bin/nodeagent daemon", "/bin/false"), "ExecStart="),
        (UNIT, "[Service]\nType=notify\n", "must have ExecStart"),
        (UNIT, GOOD_UNIT + "[Unit]\nConditionPathExists=/nope\n", "ConditionPathExists="),
        (DROPIN, "[Unit]\nConditionPathExists=/nope\n", "ConditionPathExists="),
        (DROPIN, "[Unit]\nAssertHost=x\n", "AssertHost="),
        (DROPIN, "[Unit]\nRequires=nowhere.service\n", "Requires="),
        (DROPIN, "[Service]\nExecStart=\nExecStart=/bin/true\n", "ExecStart="),
        (DROPIN, "[Service]\nExecStart=\n", "ExecStart="),
        (DROPIN, "[Service]\nExecStartPre=/bin/false\n", "ExecStartPre="),
        (DROPIN, "[Service]\nUser=nobody\n", "User="),
        ("/etc/systemd/system/service.d/10-all.conf", "[Unit]\nConditionHost=x\n", "ConditionHost="),
        ("/etc/systemd/system/dbus.socket", "", "mask"),
        ("/etc/systemd/system/dbus-broker.service", "", "mask"),
        ("/etc/systemd/system/basic.target", " ", "mask"),
        ("/etc/systemd/system/multi-user.target.wants/nodeagent.service", "x", "enables"),
        (BUS, "", "no element found"),
        (BUS, "<busconfig>", "no element found"),
        (BUS, "<policy/>", "must be a busconfig"),
        (BUS, '<busconfig><policy user="root"><deny own="org.nodeagent.Agent1"/></policy></busconfig>', "would deny"),
        (BUS, '<busconfig><policy user="root"><deny own_prefix="org.nodeagent"/></policy></busconfig>', "would deny"),
        (BUS, '<!DOCTYPE b [<!ENTITY a "b">]><busconfig>&a;</busconfig>', "entities"),
        ("/etc/dbus-1/system.conf", "", "no element found"),
        (
            BUS,
            '<busconfig><policy context="mandatory"><deny send_type="method_call"/></policy></busconfig>',
            "services",
        ),
        (BUS, '<busconfig><policy context="mandatory"><deny own="*"/></policy></busconfig>', "services"),
        (BUS, '<busconfig><policy context="mandatory"><deny user="*"/></policy></busconfig>', "services"),
        (BUS, '<busconfig><policy context="mandatory"><deny user="root"/></policy></busconfig>', "services"),
        (
            BUS,
            '<busconfig><policy user="root"><deny send_destination="org.freedesktop.systemd1"/></policy></busconfig>',
            "services",
        ),
        (f"{SYSTEM}/dbus.service.d/a.conf", "[Service]\nExecStart=\nExecStart=/bin/true\n", "must be one of"),
        (f"{SYSTEM}/dbus-broker.service.d/a.conf", "[Service]\nExecStart=\n", "must be one of"),
        (f"{SYSTEM}/dbus.service.d/a.conf", "[Unit]\nConditionPathExists=/nope\n", "ConditionPathExists="),
        (f"{SYSTEM}/dbus.socket.d/a.conf", "[Socket]\nListenStream=\n", "listen nowhere"),
        (f"{SYSTEM}/dbus.socket.d/a.conf", "[Socket]\nListenStream=\nListenStream=/run/x\n", "ListenStream="),
        (f"{SYSTEM}/dbus.socket", "[Socket]\nSocketMode=0666\n", "must have ListenStream="),
        (f"{SYSTEM}/dbus.socket", "[Socket]\nListenStream=/run/x\n", "ListenStream="),
        (f"{SYSTEM}/dbus.service.d/a.conf", "[Service]\nExecStart=\nExecStart=-\n", "must be one of"),
        (f"{SYSTEM}/dbus.service", "[Service]\nExecStart=/bin/sleep inf\n", "must be one of"),
        (f"{SYSTEM}/basic.target.d/a.conf", "[Unit]\nAssertHost=x\n", "AssertHost="),
        (f"{SYSTEM}/target.d/a.conf", "[Unit]\nConditionHost=x\n", "ConditionHost="),
        (f"{SYSTEM}/socket.d/a.conf", "[Unit]\nConditionHost=x\n", "ConditionHost="),
        ("/etc/polkit-1/actions/site.policy", "<policyconfig>", "no element found"),
        ("/etc/polkit-1/actions/site.policy", "<busconfig/>", "must be a policyconfig"),
    ],
)
def test_what_would_stop_the_agent_is_refused(path: str, content: str, words: str) -> None:
    found = refusals(FileEntry(path, content.encode()))
    assert any(words in each for each in found), found
    directory, _, name = path.rpartition("/")
    if directory == "/etc/systemd/system" and content.strip():
        assert any(words in each for each in refusals(UnitEntry(name, contents=content)))


def drop_in(text: str, *, unit: str = "nodeagent.service", directory: str = SYSTEM) -> tuple[str, str]:
    return f"{directory}/{unit}.d/x.conf", text


OTHER = "[Unit]\n{}\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"


@pytest.mark.finding(
    "attack: configs against the agent",
    "A config that masks, overrides or conflicts with the agent, or with the unit that reports a boot without it, is"
    " refused at each place of systemd's search path.",
)
@pytest.mark.parametrize(
    ("path", "content"),
    [
        *((f"{directory}/nodeagent.service", "") for directory in own_units.SEARCH_PATH),
        *((f"{directory}/dbus.socket", "") for directory in own_units.SEARCH_PATH),
        *((f"{directory}/nodeagent-absent.timer", "") for directory in own_units.SEARCH_PATH),
        *(
            drop_in("[Service]\nExecStart=\nExecStart=/bin/false\n", directory=directory)
            for directory in own_units.SEARCH_PATH
        ),
        ("/etc/systemd/system.attached/nodeagent.service", "[Service]\nExecStart=/bin/true\n"),
        drop_in("[Unit]\nConditionHost=x\n", unit="service", directory="/etc/systemd/system.control"),
        drop_in("[Unit]\nConditionHost=x\n", unit="timer"),
        drop_in("[Unit]\nConditionHost=x\n", unit="nodeagent-.service"),
        drop_in("[Unit]\nConditionHost=x\n", unit="nodeagent-absent.service", directory="/run/systemd/system"),
        drop_in("[Timer]\nOnActiveSec=\n", unit="nodeagent-absent.timer"),
        (f"{SYSTEM}/other.service", OTHER.format("Conflicts=a.service nodeagent.service")),
        ("/usr/local/lib/systemd/system/other.service", OTHER.format("Conflicts=nodeagent.service")),
        ("/etc/systemd/system.control/other.service", OTHER.format("PropagatesStopTo=nodeagent.service")),
        drop_in("[Unit]\nConflicts=nodeagent.service\n", unit="sshd.service"),
        drop_in("[Unit]\nConflicts=nodeagent-absent.timer\n", unit="sshd.service"),
        drop_in("[Unit]\nConflicts=dbus.socket\n", unit="service"),
        (f"{SYSTEM}/other.service", OTHER.format("") + "Alias=nodeagent.service\n"),
        (f"{SYSTEM}/other.service", OTHER.format("") + "Alias=dbus.service\n"),
        ("/etc/systemd/system-generators/x", '#!/bin/sh\nln -sf /dev/null "$1/nodeagent.service"\n'),
        ("/usr/local/lib/systemd/system-generators/x", '#!/bin/sh\nln -sf /dev/null "$1/nodeagent.service"\n'),
        ("/etc/containers/systemd/nodeagent.container", "[Container]\nImage=x\n"),
        ("/etc/containers/systemd/site/x.container", "[Container]\nServiceName=nodeagent\n"),
        ("/etc/containers/systemd/x.container", "[Unit]\nConflicts=nodeagent.service\n"),
    ],
)
def test_what_takes_the_agent_away_by_any_path_is_refused(path: str, content: str) -> None:
    assert refusals(FileEntry(path, content.encode(), mode=0o755))
    directory, _, name = path.rpartition("/")
    if directory == SYSTEM and content:
        assert refusals(UnitEntry(name, contents=content, enabled=True))


@pytest.mark.finding("attack: configs against the agent", "Kernel arguments that boot without the agent are refused.")
@pytest.mark.parametrize(
    ("token", "refused"),
    [
        ("systemd.mask=nodeagent.service", True),
        ("systemd.mask=dbus.socket", True),
        ("systemd.unit=rescue.target", True),
        ("systemd.mask=cups.service", False),
        ("systemd.unit=multi-user.target", False),
        ("quiet", False),
    ],
)
def test_a_kernel_argument_that_takes_the_agent_away_is_refused(token: str, refused: bool) -> None:
    new = MachineConfig("new", kernel_arguments=(token,))
    assert bool(validate(MachineConfig("old"), new)) is refused
    assert validate(new, new) == ()


def test_masking_the_bus_is_refused() -> None:
    assert refusals(UnitEntry("dbus.socket", mask=True)) == [
        "/etc/systemd/system/dbus.socket: would mask a unit that nodeagent needs"
    ]
    assert refusals(UnitEntry("cups.socket", mask=True)) == []


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (UNIT, GOOD_UNIT),
        (DROPIN, "[Service]\nMemoryMax=2G\nExecStart=\nExecStart=/opt/nodeagent/bin/nodeagent daemon\n"),
        (DROPIN, "[Unit]\nAfter=network.target\nConditionPathExists=\n"),
        (BUS, '<busconfig><policy group="ops"><allow send_destination="org.nodeagent.Agent1"/></policy></busconfig>'),
        (BUS, '<busconfig><policy context="default"><deny own="*"/></policy></busconfig>'),
        ("/etc/dbus-1/system.d/other.conf", '<busconfig><policy user="x"><deny own="org.node"/></policy></busconfig>'),
        (f"{SYSTEM}/dbus.service.d/limits.conf", "[Service]\nLimitNOFILE=4096\n"),
        (f"{SYSTEM}/dbus.socket.d/more.conf", "[Socket]\nListenStream=/run/also\n"),
        (f"{SYSTEM}/dbus.socket", "[Unit]\nConflicts=x.target\n[Socket]\nListenStream=/run/dbus/system_bus_socket\n"),
        (f"{SYSTEM}/dbus-broker.service", "[Service]\nExecStart=-/usr/bin/dbus-broker-launch --scope system\n"),
        (f"{SYSTEM}/multi-user.target.d/a.conf", "[Unit]\nWants=site.service\nConflicts=rescue.target\n"),
        (BUS, '<busconfig><policy context="default"><deny send_type="method_call"/></policy></busconfig>'),
        (BUS, '<busconfig><policy user="root"><deny send_destination="org.site.X"/></policy></busconfig>'),
        (BUS, '<busconfig><policy context="mandatory"><deny send_requested_reply="false"/></policy></busconfig>'),
        ("/etc/polkit-1/actions/site.policy", '<policyconfig><action id="org.site.x"/></policyconfig>'),
        ("/usr/lib/systemd/system/nodeagent.service", GOOD_UNIT),
        ("/etc/systemd/system.control/nodeagent.service.d/50-MemoryMax.conf", "[Service]\nMemoryMax=2G\n"),
        (f"{SYSTEM}/nodeagent-.service.d/proxy.conf", "[Service]\nEnvironment=https_proxy=http://p\n"),
        (f"{SYSTEM}/other.service", OTHER.format("Conflicts=shutdown.target\nAfter=nodeagent.service")),
        (f"{SYSTEM}/site.target", "[Unit]\nConflicts=rescue.target\n[Install]\nAlias=default.target\n"),
        (f"{SYSTEM}/dbus-broker.service.d/a.conf", "[Install]\nAlias=dbus.service\n"),
        ("/etc/systemd/system-generators/x", "#!/bin/sh\n:\n"),
        ("/etc/containers/systemd/site.container", "[Container]\nImage=x\n"),
    ],
)
def test_what_does_not_is_taken(path: str, content: str) -> None:
    assert refusals(FileEntry(path, content.encode())) == []
