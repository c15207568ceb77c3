# SPDX-License-Identifier: Apache-2.0
"""Which changes of sysctl.d a restart of systemd-sysctl is enough for, where the recommended policy applies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from nodeagent import domains
from nodeagent.core.plan.change import Action, ActionType, Plan, PolicySource
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.policy import NONE, Entry, Policy, merge, restart
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.domains import default_policy, live_values, with_rules
from nodeagent.domains.sysctl import AT_ONCE
from nodeagent.host.view import read_files
from tests.support.configs import config

FILE = "/etc/sysctl.d/60-site.conf"
UNIT = "systemd-sysctl.service"
RECOMMENDED = Path(__file__).parents[2] / "systemd/usr/lib/nodeagent/policy-recommended.yaml"
POLICY = merge(default_policy(), with_rules(parse_policy(RECOMMENDED.read_bytes(), str(RECOMMENDED))))
OLD = "vm.swappiness = 60\nfs.file-max = 100\nkernel.panic = 10\nnet.core.somaxconn = 4096\n"
# The kernel before the update, with the values of OLD and VENDOR.
KERNEL = {
    "vm/swappiness": "60",
    "vm/max_map_count": "65530",
    "fs/file-max": "100",
    "kernel/panic": "10",
    "net/core/somaxconn": "4096",
    "net/ipv4/ip_local_port_range": "32768\t60999",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/lo/rp_filter": "2",
}
VENDOR = "net.ipv4.ip_local_port_range = 32768 60999\nnet.ipv4.conf.*.rp_filter = 2\n-net.ipv4.conf.all.rp_filter\n"
GLOB = "/proc/sys/net/ipv4/conf/*/rp_filter"
MATCHES = b"/proc/sys/net/ipv4/conf/all/rp_filter\n/proc/sys/net/ipv4/conf/lo/rp_filter"


def host(kernel: Mapping[str, str] = KERNEL, files: Mapping[str, str] | None = None) -> dict[str, bytes]:
    found = {f"/proc/sys/{name}": f"{value}\n".encode() for name, value in kernel.items()}
    found |= {path: text.encode() for path, text in (files or {"/usr/lib/sysctl.d/50-default.conf": VENDOR}).items()}
    return {**found, GLOB: MATCHES}


def planned(old: str | None, new: str | None, view: Mapping[str, bytes] | None = None, policy: Policy = POLICY) -> Plan:
    sides = [config(files={} if text is None else {FILE: text.encode()}) for text in (old, new)]
    return make_plan(sides[0], sides[1], policy, host=HostView(host() if view is None else view))


def word(plan: Plan) -> str:
    return " ".join(str(action.type) for action in plan.actions)


# Old, new, and the actions.
TABLE: dict[str, tuple[str | None, str | None, str]] = {
    "a value changes": (OLD, OLD.replace("60", "10"), "Restart"),
    "another form of the name": (OLD, OLD.replace("vm.swappiness = 60", "-vm/swappiness=10"), "Restart"),
    "a value of the OS": (OLD, f"{OLD}net.ipv4.ip_local_port_range = 1024 60999\n", "Restart"),
    "only a comment": (OLD, f"# why\n{OLD}", "None"),
    "the order": (OLD, "".join(reversed(OLD.splitlines(keepends=True))), "Drain Reboot"),
    "an added key": (OLD, f"{OLD}vm.max_map_count = 262144\n", "Drain Reboot"),
    "a removed key": (OLD, OLD.replace("fs.file-max = 100\n", ""), "Drain Reboot"),
    "a new file": (None, OLD, "Drain Reboot"),
    "a removed file": (OLD, None, "Drain Reboot"),
    "one key of two": (OLD, OLD.replace("60", "10").replace("kernel.panic = 10", "kernel.panic = 20"), "Drain Reboot"),
    "a setting of new sockets": (OLD, OLD.replace("4096", "8192"), "Drain Reboot"),
    "an added pattern": (OLD, f"{OLD}net.ipv4.conf.*.forwarding = 1\n", "Drain Reboot"),
    "an exception": (OLD, f"{OLD}-vm.swappiness\n", "Drain Reboot"),
    "no plain number": (OLD, OLD.replace("60", "0x3c"), "Drain Reboot"),
    "a value that is too long to be shown": (OLD, OLD.replace("60", "1" * 300), "Drain Reboot"),
    "no value": (OLD, OLD.replace("60", ""), "Drain Reboot"),
    "no setting, beside the same values": (OLD, f"{OLD}net/../x = 1\n", "Drain Reboot"),
    "no setting": (OLD, OLD.replace("60", "10") + "vm.swappiness 10\n", "Drain Reboot"),
    "out of the directory": (OLD, OLD.replace("60", "10") + "vm/../x = 1\n", "Drain Reboot"),
}


@pytest.mark.parametrize("case", TABLE)
def test_actions(case: str) -> None:
    old, new, wanted = TABLE[case]
    assert word(planned(old, new)) == wanted


NEW = OLD.replace("60", "10")
# Files of the host and the kernel, beside a value that changes.
HOSTS: dict[str, tuple[dict[str, bytes], str]] = {
    "no host": ({}, "Drain Reboot"),
    "another program changed the value": (host({**KERNEL, "vm/swappiness": "1"}), "Drain Reboot"),
    "another program changed another value": (host({**KERNEL, "kernel/panic": "0"}), "Drain Reboot"),
    "another program changed a match": (host({**KERNEL, "net/ipv4/conf/lo/rp_filter": "0"}), "Drain Reboot"),
    "the exception of the pattern": (host({**KERNEL, "net/ipv4/conf/all/rp_filter": "1"}), "Restart"),
    "a value that cannot be read": (host({k: v for k, v in KERNEL.items() if k != "fs/file-max"}), "Drain Reboot"),
    "matches that are not known": ({k: v for k, v in host().items() if k != GLOB}, "Drain Reboot"),
    "a later file sets it": (host(files={"/etc/sysctl.d/99-x.conf": "vm.swappiness = 60\n"}), "Drain Reboot"),
    "an earlier file sets it": (host(files={"/etc/sysctl.d/10-x.conf": "vm.swappiness = 1\n"}), "Restart"),
    "a key that acts when it is written": (
        host({**KERNEL, "vm/drop_caches": "1"}, {"/etc/sysctl.d/x.conf": "vm.drop_caches = 1\n"}),
        "Drain Reboot",
    ),
    "a file with a line that is no setting": (host(files={"/run/sysctl.d/x.conf": "x\n"}), "Drain Reboot"),
}


@pytest.mark.parametrize("case", HOSTS)
def test_the_host_decides(case: str) -> None:
    view, wanted = HOSTS[case]
    assert word(planned(OLD, NEW, view)) == wanted


def test_a_file_that_the_host_has_already() -> None:
    assert word(planned(None, OLD, host(files={FILE: OLD}))) == "Drain Reboot"


def test_only_files_of_the_directory_itself_are_read() -> None:
    for path in ("/etc/sysctl.d/README", "/etc/sysctl.d/sub/a.conf"):
        assert word(make_plan(config(), config(files={path: OLD.encode()}), POLICY)) == "None"


def test_a_comment_needs_no_host() -> None:
    assert word(planned(OLD, f"# why\n{OLD}", {})) == "None"


def test_the_plan_has_the_keys() -> None:
    (change,) = planned(OLD, f"{NEW}net.ipv6.conf.eth0.stable_secret = ::1\n").changes
    assert [(key.key, key.before, key.after, key.why) for key in change.keys] == [
        ("net.ipv6.conf.eth0.stable_secret", "", "(not shown)", "is added, so that a revert could not take it away"),
        ("vm.swappiness", '"60"', '"10"', ""),
    ]


def test_only_the_recommended_policy_has_the_rule_and_an_entry_of_the_admin_is_stronger() -> None:
    assert planned(OLD, NEW, policy=default_policy()).changes[0].policy is PolicySource.NONE
    (change,) = planned(OLD, NEW).changes
    assert (change.policy, change.avoids_reboot, change.actions) == (PolicySource.RECOMMENDED, True, (restart(UNIT),))
    for key in ("/etc/sysctl.d", FILE):
        mine = merge(POLICY, Policy(files={key: Entry(key, (NONE,), PolicySource.USER)}))
        assert word(planned(OLD, NEW, policy=mine)) == "None"


def test_the_values_that_the_kernel_has_after_it() -> None:
    plan = planned(OLD, NEW.replace("fs.file-max = 100", "fs.file-max = 200"))
    keys = plan.changes[0].keys
    assert live_values(UNIT, keys, reverted=False) == {"/proc/sys/vm/swappiness": "10", "/proc/sys/fs/file-max": "200"}
    assert live_values(UNIT, keys, reverted=True) == {"/proc/sys/vm/swappiness": "60", "/proc/sys/fs/file-max": "100"}
    assert live_values("x.service", keys, reverted=False) == {}
    # Of an update that reboots, nothing is expected of a restart.
    assert live_values(UNIT, planned(OLD, OLD.replace("4096", "1")).changes[0].keys, reverted=False) == {}


def test_what_is_read() -> None:
    old, new = config(files={FILE: OLD.encode()}), config(files={FILE: b"vm.swappiness = 10\nnet/../../../etc/x = 1\n"})
    found = set(domains.sysctl.DOMAIN.reads(Sides(old, new, HostView(host()))))
    assert {"/proc/sys/vm/swappiness", "/proc/sys/kernel/panic", GLOB, "/usr/lib/sysctl.d/", "/etc/sysctl.d/"} <= found
    assert not any(".." in path for path in found)
    many = config(files={FILE: "".join(f"vm.x{n} = 1\nvm.y{n}* = 1\n" for n in range(1000)).encode()})
    assert len(domains.sysctl.DOMAIN.reads(Sides(old, many, HostView()))) < 250
    assert domains.sysctl.DOMAIN.reads(Sides(old, old)) == ()


def test_a_line_that_is_no_setting_is_a_warning() -> None:
    sides = (config(files={FILE: OLD.encode()}), config(files={FILE: f"{OLD}vm.swappiness 10\n".encode()}))
    (problem,) = domains.warnings(*sides)
    assert problem.path == FILE
    assert "line 5" in problem.message


def test_names_need_no_separator_within_a_name() -> None:
    """``live_values`` makes paths of them."""
    assert AT_ONCE
    assert not any("." in name or ".." in name for name in AT_ONCE)


def test_the_rule_needs_an_action_of_its_unit() -> None:
    entry = parse_policy(RECOMMENDED.read_bytes()).files["/etc/sysctl.d"]
    assert entry.actions == (Action(ActionType.RESTART, UNIT),)


MISSING = pytest.mark.finding(
    "configs: refused before the question", "A setting that the kernel of the host does not have is a warning."
)


def missing(root: Path, *lines: str, modules: bool = False) -> list[str]:
    """Return the warnings about lines on a host with the settings of KERNEL, and one that cannot be read."""
    for name, value in {**KERNEL, "kernel/ostype": "Linux"}.items():
        (root / "proc/sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "proc/sys" / name).write_text(value)
    # What is no regular file cannot be read, as root cannot read this setting.
    (root / "proc/sys/vm/compact_memory").mkdir()
    files = {FILE: "".join(f"{line}\n" for line in lines).encode()}
    new = config(files=files | ({"/etc/modules-load.d/k8s.conf": b"br_netfilter\n"} if modules else {}))
    view = read_files(domains.reads, new=new, root=root)
    found = domains.warnings(config(), new, HostView(view))
    assert {problem.path for problem in found} <= {FILE}
    assert not domains.warnings(config(), new), "without a host, nothing is known"
    return [problem.message for problem in found]


@MISSING
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("vm.swapiness = 10", "no setting of this kernel, so it has no effect; did you mean swappiness?"),
        ("vn.swappiness = 10", "vn.swappiness is no setting of this kernel now"),
        ("net.ipv4.ip_local_prot_range = 1 2", "did you mean ip_local_port_range?"),
        ("net.ivp4.ip_local_port_range = 1 2", "did you mean ipv4?"),
        ("net.bridge.bridge-nf-call-iptables = 1", "no effect until a module or an interface brings it"),
        # The name of an interface that is not there yet.
        ("net.ipv4.conf.alll.rp_filter = 1", "no effect until a module or an interface brings it"),
        ("net.ipv4.conf.lo.rp_flter = 1", "did you mean rp_filter?"),
    ],
)
def test_a_setting_that_the_kernel_does_not_have_is_a_warning(tmp_path: Path, line: str, words: str) -> None:
    (message,) = missing(tmp_path, line)
    assert words in message


@MISSING
@pytest.mark.parametrize(
    "line",
    [
        "vm.swappiness = 10",
        "vm/swappiness = 10",
        "-vm.swapiness = 10",
        "net.ipv4.conf.*.rp_filter = 1",
        "vm.compact_memory = 1",
        "# vm.swapiness = 1",
    ],
)
def test_a_setting_that_may_be_missing_or_cannot_be_read_is_no_warning(tmp_path: Path, line: str) -> None:
    assert not missing(tmp_path, line)


@MISSING
def test_a_config_that_loads_modules_has_settings_of_them(tmp_path: Path) -> None:
    (message,) = missing(tmp_path, "net.bridge.bridge-nf-call-iptables = 1", "vm.swapiness = 1", modules=True)
    assert "vm.swapiness" in message
