# SPDX-License-Identifier: Apache-2.0
"""Configurations that are refused, the result of the dry run, and the proof that a kubelet works."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.change import KeyChange
from nodeagent.core.plan.domain import NODE, HttpHealth, UnitFailure
from nodeagent.core.plan.program import ProgramResult
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.core.validate.quantity import parse_duration, parse_quantity
from nodeagent.domains.kubelet import DOMAIN
from nodeagent.domains.kubelet.document import KubeletConfig
from nodeagent.domains.kubelet.dry_run import PASSED, judge
from nodeagent.domains.kubelet.limits import KERNEL
from tests.domains.kubelet.test_keys import CONF, DROPINS, UNIT, dropin, exec_start, kubelet
from tests.support.configs import config

CAPACITY = {
    "/proc/meminfo": b"MemTotal:        8388608 kB\nMemFree: 1 kB\n",
    "/sys/devices/system/cpu/online": b"0-3\n",
    "/sys/devices/system/node/online": b"0-1\n",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", "0.5"),
        ("1.5", "1.5"),
        ("100Mi", "104857600"),
        ("1e3", "1000"),
        ("1E", "1e18"),
        ("2k", "2000"),
        (".5", "0.5"),
        ("-1", "-1"),
        ("", None),
        ("lots", None),
        ("1Kb", None),
        ("1 Gi", None),
        ("1e999999999", None),
    ],
)
def test_quantities(text: str, value: str | None) -> None:
    found = parse_quantity(text)
    assert found == (None if value is None else parse_quantity(value))
    assert (found is None) == (value is None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20s", 20.0),
        ("1h2m3s", 3723.0),
        ("1.5m", 90.0),
        (".5s", 0.5),
        ("100ms", 0.1),
        ("0", 0.0),
        ("20", None),
        ("-1s", None),
        ("1s ", None),
        ("1d", None),
        ("", None),
        ("1s" * 1000, None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == (None if seconds is None else pytest.approx(seconds))


def problems(keys: dict[str, Any], before: dict[str, Any] | None = None, host: bool = True) -> list[str]:
    """The keys that are refused on a host with 4 CPUs and 8 GiB of memory."""
    old, new = config(files={CONF: kubelet(**(before or {}))}), config(files={CONF: kubelet(**keys)})
    found = list(DOMAIN.validate(Sides(old, new, HostView(CAPACITY if host else {})), {}))
    assert all(problem.path == CONF for problem in found)
    return [problem.message.split()[0] for problem in found]


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        ({"systemReserved": {"cpu": "lots"}}, ["systemReserved.cpu"]),
        ({"systemReserved": {"ephemeral-storage": ""}}, ["systemReserved.ephemeral-storage"]),
        ({"kubeReserved": {"memory": "-1"}}, ["kubeReserved.memory"]),
        ({"kubeReserved": {"memory": "10%"}}, ["kubeReserved.memory"]),
        ({"evictionHard": {"memory.available": "nonsense"}}, ["evictionHard.memory.available"]),
        ({"evictionHard": {"memory.available": "101%"}}, ["evictionHard.memory.available"]),
        ({"evictionHard": {"memory.available": "-5%"}}, ["evictionHard.memory.available"]),
        ({"evictionHard": {"memory.available": "10Mi%"}}, ["evictionHard.memory.available"]),
        ({"evictionHard": {"memory.available": "0"}}, ["evictionHard.memory.available"]),
        # The kubelet takes both for no threshold.
        ({"evictionHard": {"memory.available": "0%", "nodefs.available": "100%"}}, []),
        ({"systemReserved": {"memory": "7Gi"}, "evictionHard": {"memory.available": "100%"}}, []),
        ({"evictionMinimumReclaim": {"memory.available": "0%"}}, ["evictionMinimumReclaim.memory.available"]),
        ({"evictionMinimumReclaim": {"memory.available": "0", "nodefs.available": "120%"}}, []),
        ({"evictionSoft": {"memory.available": "-1"}}, ["evictionSoft.memory.available"]),
        ({"evictionSoft": {"memory.available": "10%"}}, ["evictionSoft.memory.available"]),
        ({"evictionSoft": {"memory.available": "100%"}}, []),
        (
            {
                "evictionSoft": {"memory.available": "10%"},
                "evictionSoftGracePeriod": {"memory.available": "1m"},
            },
            [],
        ),
        ({"evictionHard": {"nodefs.available": "10%", "memory.available": "100Mi", "new.signal": "1"}}, []),
        ({"systemReserved": {"cpu": "64"}}, ["systemReserved.cpu"]),
        ({"systemReserved": {"cpu": "2"}, "kubeReserved": {"cpu": "2500m"}}, ["kubeReserved.cpu"]),
        ({"systemReserved": {"cpu": "2"}, "kubeReserved": {"cpu": 2}}, []),
        ({"systemReserved": {"memory": "7Gi"}, "evictionHard": {"memory.available": "2Gi"}}, ["systemReserved.memory"]),
        ({"systemReserved": {"memory": "7Gi"}, "evictionHard": {"memory.available": "20%"}}, ["systemReserved.memory"]),
        ({"systemReserved": {"memory": "7Gi"}, "evictionHard": {"memory.available": "5%"}}, []),
        (
            {
                "systemReserved": {"memory": "4Gi"},
                "kubeReserved": {"memory": "3Gi"},
                "evictionHard": {"memory.available": "12.6%"},
            },
            ["systemReserved.memory"],
        ),
        ({"reservedSystemCPUs": "0-1", "systemReserved": {"cpu": "64"}}, []),
        ({"reservedSystemCPUs": "3-4"}, ["reservedSystemCPUs"]),
        ({"reservedSystemCPUs": "x"}, ["reservedSystemCPUs"]),
        ({"reservedSystemCPUs": "0-99999999999"}, ["reservedSystemCPUs"]),
        ({"cpuManagerPolicy": "static"}, ["cpuManagerPolicy"]),
        ({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}, []),
        ({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "500m"}}, []),
    ],
)
def test_reservations_that_the_host_cannot_have(keys: dict[str, Any], refused: list[str]) -> None:
    assert problems(keys) == refused


STATIC = {"memoryManagerPolicy": "Static", "systemReserved": {"memory": "300Mi"}}


def limits(*memory: str, node: int = 0) -> dict[str, Any]:
    return {
        "reservedMemory": [{"numaNode": node + each, "limits": {"memory": size}} for each, size in enumerate(memory)]
    }


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        # The default threshold of evictions is 100Mi.
        ({**STATIC, **limits("400Mi")}, []),
        ({**STATIC, **limits("300Mi", "100Mi")}, []),
        ({**STATIC, **limits("300Mi")}, ["reservedMemory"]),
        ({**STATIC, **limits("300Mi"), "evictionHard": {"nodefs.available": "10%"}}, []),
        ({**STATIC, **limits("500Mi"), "evictionHard": {"memory.available": "200Mi"}}, []),
        # 5% in single precision of 8 GiB.
        ({**STATIC, **limits("300Mi", "429496736"), "evictionHard": {"memory.available": "5%"}}, []),
        ({**STATIC, **limits("300Mi", "429496729"), "evictionHard": {"memory.available": "5%"}}, ["reservedMemory"]),
        ({**STATIC, **limits("300Mi"), "evictionHard": {"memory.available": "100%"}}, []),
        ({**STATIC, **limits("400Mi", node=2)}, ["reservedMemory"]),
        (
            {**STATIC, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "400Mi", "hugepages-2Mi": "2Mi"}}]},
            ["reservedMemory"],
        ),
        ({**STATIC}, ["reservedMemory"]),
        ({"memoryManagerPolicy": "Static", "evictionHard": {}}, ["reservedMemory"]),
        ({"memoryManagerPolicy": "Static", "reservedMemory": "0:memory=1Gi"}, []),
        ({"memoryManagerPolicy": "None", **limits("1Mi")}, []),
    ],
)
def test_reserved_memory_is_the_sum_of_what_is_kept_back(keys: dict[str, Any], refused: list[str]) -> None:
    assert problems(keys) == refused


ENFORCED = {"enforceNodeAllocatable": ["pods", "system-reserved"], "systemReservedCgroup": "/system.slice"}
CPU = {"systemReserved": {"cpu": "1"}}
UNIFIED = {"/sys/fs/cgroup/cgroup.controllers": b"cpu\n"}
RIGHT_KERNEL = {f"/proc/sys/{name}": value.encode() for name, value in KERNEL.items()}


@pytest.mark.parametrize(
    ("keys", "host", "refused"),
    [
        ({**ENFORCED, **CPU}, {}, []),
        ({**ENFORCED, **CPU}, UNIFIED, ["systemReservedCgroup"]),
        ({**ENFORCED, **CPU}, {**UNIFIED, "/sys/fs/cgroup/system.slice/cgroup.controllers": b""}, []),
        # A unit that makes it may come with the same update.
        ({**ENFORCED, **CPU}, {**UNIFIED, "/etc/systemd/system/system.slice": b"[Slice]"}, []),
        ({**ENFORCED, **CPU}, {**UNIFIED, "/etc/systemd/system/a.service": b"[Service]\nSlice=system.slice"}, []),
        ({**ENFORCED}, UNIFIED, ["enforceNodeAllocatable"]),
        ({**ENFORCED, **CPU, "enforceNodeAllocatable": ["pods"]}, UNIFIED, []),
        ({"protectKernelDefaults": True}, RIGHT_KERNEL, []),
        (
            {"protectKernelDefaults": True},
            {**RIGHT_KERNEL, "/proc/sys/kernel/panic": b"0\n"},
            ["protectKernelDefaults"],
        ),
        ({"protectKernelDefaults": False}, {**RIGHT_KERNEL, "/proc/sys/kernel/panic": b"0\n"}, []),
        (
            {"protectKernelDefaults": True},
            {"/proc/sys/kernel/panic": b"0\n", "/etc/sysctl.d/90-kubelet.conf": b"# x\nkernel.panic = 10\n"},
            [],
        ),
        (
            {"protectKernelDefaults": True},
            {
                "/proc/sys/kernel/panic": b"0\n",
                "/usr/lib/sysctl.d/90-kubelet.conf": b"kernel.panic=10\n",
                "/etc/sysctl.d/90-kubelet.conf": b"",
            },
            ["protectKernelDefaults"],
        ),
    ],
)
def test_cgroups_and_settings_of_the_kernel(keys: dict[str, Any], host: dict[str, bytes], refused: list[str]) -> None:
    old, new = config(files={CONF: kubelet()}), config(files={CONF: kubelet(**keys)})
    sides = Sides(old, new, HostView(host))
    assert [problem.message.split()[0] for problem in DOMAIN.validate(sides, {})] == refused
    wanted = set(DOMAIN.reads(sides))
    assert not refused or all(
        path in wanted or f"{path.rpartition('/')[0]}/" in wanted for path in host if "/etc/systemd" not in path
    )


def containerd(version: int, systemd: str) -> bytes:
    options = 'plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options'
    return f"version = {version}\n[{options}]\nSystemdCgroup = {systemd}\n".encode()


SOCKET = {"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock"}
SWAP = {"/proc/swaps": b"Filename Type Size Used Priority\n/dev/zram0 partition 1 0 100\n"}


@pytest.mark.parametrize(
    ("keys", "host", "named"),
    [
        ({"failSwapOn": True}, SWAP, "/dev/zram0"),
        ({"failSwapOn": False}, SWAP, ""),
        ({}, {"/proc/swaps": b"Filename Type Size Used Priority\n"}, ""),
        (
            {**SOCKET, "cgroupDriver": "systemd"},
            {"/etc/containerd/config.toml": containerd(2, "false")},
            "SystemdCgroup",
        ),
        ({**SOCKET, "cgroupDriver": "systemd"}, {"/etc/containerd/config.toml": containerd(2, "true")}, ""),
        # As before.
        ({**SOCKET}, {"/etc/containerd/config.toml": containerd(2, "true")}, ""),
        # containerd 2 answers the kubelet, which then ignores its own key.
        ({**SOCKET, "cgroupDriver": "systemd"}, {"/etc/containerd/config.toml": containerd(3, "false")}, ""),
    ],
)
def test_what_a_reboot_or_another_runtime_may_make_right_is_a_warning(
    keys: dict[str, Any], host: dict[str, bytes], named: str
) -> None:
    off = {"failSwapOn": False}
    old, new = config(files={CONF: kubelet(**off)}), config(files={CONF: kubelet(**keys)})
    found = [problem.message for problem in DOMAIN.warnings(Sides(old, new, HostView(host)))]
    assert len(found) == bool(named)
    assert named in "".join(found)
    assert list(DOMAIN.warnings(Sides(new, new, HostView(host)))) == [], "it was so before"


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"evictionHard": {"memory.availabel": "1Gi"}}, "evictionHard.memory.availabel"),
        ({"evictionSoft": {"disk": "5%"}, "evictionSoftGracePeriod": {"disk": "1m"}}, "evictionSoft.disk"),
        ({"kubeReserved": {"hugepages-2Mi": "2Mi"}}, "kubeReserved.hugepages-2Mi"),
        ({"systemReserved": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "pid": "100"}}, ""),
        ({"evictionHard": {"nodefs.inodesFree": "5%", "containerfs.available": "5%", "pid.available": "9"}}, ""),
        ({"evictionMinimumReclaim": {"imagefs.available": "2Gi"}}, ""),
    ],
)
def test_a_resource_or_signal_that_is_not_known_is_a_warning(keys: dict[str, Any], named: str) -> None:
    old, new = config(files={CONF: kubelet()}), config(files={CONF: kubelet(**keys)})
    found = [problem.message.split()[0] for problem in DOMAIN.warnings(Sides(old, new))]
    assert found == ([named] if named else [])
    assert list(DOMAIN.warnings(Sides(new, new))) == [], "it was so before"


def test_a_hidden_drop_in_is_named() -> None:
    host = HostView(
        {UNIT: exec_start(f"--config-dir={DROPINS}"), f"{DROPINS}/.10.conf": b"", f"{DROPINS}/10.conf.bak": b""}
    )
    (found,) = DOMAIN.warnings(Sides(host=host))
    assert found.path == f"{DROPINS}/.10.conf"


def test_what_was_wrong_before_is_not_the_fault_of_the_update() -> None:
    wrong = {"systemReserved": {"cpu": "64"}}
    assert problems({**wrong, "maxPods": 9}, wrong) == []
    assert problems({**wrong}, {}, host=False) == []
    assert problems({"systemReserved": {"cpu": "lots"}}, {}, host=False) == ["systemReserved.cpu"]


def test_the_flags_of_the_unit_count() -> None:
    host = HostView({**CAPACITY, UNIT: exec_start(f"--config={CONF} --kube-reserved=cpu=3")})
    sides = Sides(config(files={CONF: kubelet()}), config(files={CONF: kubelet(systemReserved={"cpu": "2"})}), host)
    assert [problem.message.split()[0] for problem in DOMAIN.validate(sides, {})] == ["kubeReserved.cpu"]


def test_static_pods_are_not_left_behind() -> None:
    old, new = (config(files={CONF: kubelet(staticPodPath=f"/etc/{name}")}) for name in ("manifests", "other"))
    assert list(DOMAIN.validate(Sides(old, new), {})) == []
    host = HostView({"/etc/manifests/etcd.yaml": b"x"})
    (problem,) = DOMAIN.validate(Sides(old, new, host), {})
    assert problem.path == CONF
    assert "/etc/manifests" in problem.message
    assert "/etc/manifests/" in DOMAIN.reads(Sides(old, new))


# The dry run


def plan_of(old: MachineConfig, new: MachineConfig, **host: bytes) -> list[tuple[str, tuple[str, ...], set[str]]]:
    view = HostView({UNIT: host["unit"]} if host else {})
    checks = DOMAIN.programs(Sides(old, new, view))
    return [(check.program, check.arguments, set(check.tree)) for check in checks]


OWN = ("--cert-dir={scratch}", "--exit-on-lock-contention")


def test_the_dry_run_has_the_flags_of_the_unit_and_the_whole_directory() -> None:
    unit = exec_start(f"--config={CONF} --config-dir={DROPINS} --node-ip=10.0.0.1 --lock-file=/x --cert-dir=/pki")
    old = config(files={CONF: kubelet(), **dropin("10.conf"), f"{DROPINS}/x.bak": b"x"})
    new = config(files={CONF: kubelet(maxPods=9), **dropin("10.conf"), f"{DROPINS}/x.bak": b"x"})
    assert plan_of(old, new, unit=unit) == [
        (
            "/usr/bin/kubelet",
            ("--node-ip=10.0.0.1", f"--config={{tree}}{CONF}", f"--config-dir={{tree}}{DROPINS}", *OWN),
            {CONF, f"{DROPINS}/10.conf", f"{DROPINS}/x.bak"},
        ),
        (
            "/usr/bin/kubelet",
            ("--node-ip=10.0.0.1", "--config={tree}/merged/kubelet.conf", *OWN),
            {"/merged/kubelet.conf"},
        ),
    ]


def test_the_kubelet_of_another_image_is_not_asked() -> None:
    old, new = config(files={CONF: kubelet()}), config(files={CONF: kubelet(maxPods=9)})
    assert plan_of(old, new)
    assert plan_of(old, replace(new, os_image_url="q/b")) == []


def test_without_a_change_of_the_kubelet_there_is_no_dry_run() -> None:
    same = config(files={CONF: kubelet()})
    assert plan_of(same, config(files={CONF: kubelet(), "/etc/x": b"1"})) == []


GOOD = f'E1123 run.go:72] "command failed" err="{PASSED}"'
LENIENT = 'I1123 codec.go:102] "Using lenient decoding as strict decoding failed" err='
UNKNOWN = LENIENT + r'"strict decoding error: unknown field \"zz\", unknown field \"logging.nope\""'
TWICE = [LENIENT + "<", "\tstrict decoding error:", '\t  line 4: key "maxPods" already set in map']


def failed(text: str) -> str:
    return f'E1123 run.go:72] "command failed" err="{text}"'


def invalid(*problems: str) -> str:
    found = ", ".join(problems)
    listed = f"[{found}]" if len(problems) > 1 else found
    return failed(f"failed to validate kubelet configuration, error: {listed}, path: &TypeMeta{{Kind:,APIVersion:,}}")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([GOOD], []),
        (["exec format error"], []),
        ([UNKNOWN, GOOD], ["d", "m"]),
        ([*TWICE, GOOD], ["m"]),
        ([LENIENT + r'"strict decoding error: duplicate field \"maxPods\""', GOOD], ["m"]),
        (["panic: failed to merge: unrecognized feature gate: NoSuchGate", "goroutine 1 [running]:"], ["m"]),
        ([invalid("invalid configuration: imageGCLow 80")], ["m"]),
        ([failed(f"failed to merge kubelet configs: {DROPINS}/10.conf: no kind")], ["d"]),
        (
            [invalid("invalid configuration: maxPods is 1", "invalid configuration: zz", "kubelet is configured to")],
            ["m", "d", "m"],
        ),
    ],
)
def test_what_the_dry_run_says(lines: list[str], expected: list[str]) -> None:
    files = {CONF: kubelet(maxPods=1, logging={"nope": 1}), **dropin("10.conf", zz=1)}
    found = list(judge(KubeletConfig(files), ProgramResult(1, lines)))
    assert [problem.path for problem in found] == [{"m": CONF, "d": f"{DROPINS}/10.conf"}[name] for name in expected]
    assert not any("TypeMeta" in problem.message for problem in found)


# Proofs


@pytest.mark.parametrize(
    ("keys", "url"),
    [
        ({}, "http://127.0.0.1:10248/healthz"),
        ({"healthzPort": 10333}, "http://127.0.0.1:10333/healthz"),
        ({"healthzBindAddress": "0.0.0.0"}, "http://127.0.0.1:10248/healthz"),
        ({"healthzBindAddress": "::1"}, "http://[::1]:10248/healthz"),
        ({"healthzPort": 0}, None),
    ],
)
def test_health_is_asked_where_the_kubelet_answers(keys: dict[str, Any], url: str | None) -> None:
    found = DOMAIN.verify("kubelet.service", HostView({CONF: kubelet(**keys)}))
    assert found == (() if url is None else (HttpHealth("kubelet.service", url),))


def ended(unit: str, result: str, document: str | None = CONF) -> UnitFailure:
    keys = () if document is None else (KeyChange(document, "maxPods", "1", "2", ()),)
    return UnitFailure(unit, result, keys)


@pytest.mark.parametrize(
    ("failed", "curable"),
    [
        (ended("kubelet.service", "exit-code"), False),
        (ended("kubelet.service", "exit-code", "kubelet.service"), False),
        (ended("kubelet.service", "exit-code", f"{DROPINS}/10.conf"), False),
        (ended("kubelet.service", "timeout"), True),
        (ended("kubelet.service", ""), True),
        (ended("kubelet.service", "exit-code", None), True),
        (ended("kubelet.service", "exit-code", "/etc/crio/crio.conf"), True),
        (ended("crio.service", "exit-code"), True),
        (ended(NODE, ""), False),
        (ended(NODE, "", "/etc/cni/net.d/10.conflist"), True),
    ],
)
def test_a_kubelet_that_ends_with_its_new_configuration_is_not_booted(failed: UnitFailure, curable: bool) -> None:
    assert DOMAIN.curable(failed) is curable


def test_the_problem_of_a_file_names_it() -> None:
    (problem,) = DOMAIN.validate(Sides(), {f"{DROPINS}/10.conf": b"kind: Pod\n"})
    assert problem.path == f"{DROPINS}/10.conf"


@pytest.mark.finding(
    "domains: equal values for the kubelet",
    "What the kubelet takes for the same value changes nothing, and is waited for nowhere.",
)
@pytest.mark.parametrize(
    ("before", "after", "outdated", "reverted"),
    [
        ("110", "250", {"pods": "110"}, {"pods": "250"}),
        ("", "250", {"pods": "110"}, {"pods": "250"}),
        ("250", "", {"pods": "250"}, {"pods": "110"}),
        ("", "110", {}, {}),
        ("110", "0", {}, {}),
        ("0", "250", {"pods": "110"}, {"pods": "250"}),
    ],
)
def test_the_capacity_shows_which_configuration_a_kubelet_has(
    before: str, after: str, outdated: dict[str, str], reverted: dict[str, str]
) -> None:
    keys = [KeyChange(CONF, "port", "1", "2", ()), KeyChange(CONF, "maxPods", before, after, ())]
    assert DOMAIN.outdated(keys, reverted=False) == outdated
    assert DOMAIN.outdated(keys, reverted=True) == reverted
    assert DOMAIN.outdated([replace(keys[1], document="/etc/other")], reverted=False) == {}


@pytest.mark.finding(
    "domains: equal values for the kubelet",
    "What the kubelet takes for the same value changes nothing, and is waited for nowhere.",
)
def test_with_pods_per_core_no_other_capacity_is_waited_for() -> None:
    both = {"podsPerCore": 10}
    for was, now in (({"maxPods": 40}, {"maxPods": 80}), ({"maxPods": 40, **both}, {"maxPods": 80})):
        old, new = (config(files={CONF: kubelet(**keys)}) for keys in ({**both, **was}, {**both, **now}))
        keys = DOMAIN.changes(Sides(old, new))
        assert "maxPods" in [key.key for key in keys]
        assert DOMAIN.outdated(keys, reverted=False) == {}


@pytest.mark.parametrize(
    ("keys", "amounts"),
    [
        ({}, {"cpu": 0, "memory": 100 << 20}),
        ({"evictionHard": {}}, {"cpu": 0, "memory": 0, "ephemeral-storage": 0}),
        ({"systemReserved": {"cpu": "500m"}, "kubeReserved": {"cpu": "0.5"}}, {"cpu": 1, "memory": 100 << 20}),
        ({"systemReserved": {"cpu": "3"}, "reservedSystemCPUs": "0-1"}, {"cpu": 2, "memory": 100 << 20}),
        (
            {"kubeReserved": {"memory": "1Gi"}, "evictionHard": {"memory.available": "5%"}},
            {"cpu": 0, "memory": (1 << 30) + 429496736, "ephemeral-storage": 0},
        ),
        (
            {"evictionHard": {"memory.available": "100%", "nodefs.available": "5%"}},
            {"cpu": 0, "memory": 0},
        ),
    ],
)
def test_what_is_kept_back_from_pods(keys: dict[str, Any], amounts: dict[str, int]) -> None:
    changed = [KeyChange(CONF, "systemReserved.cpu", "", '"1"', ())]
    host = HostView({CONF: kubelet(**keys), **CAPACITY})
    assert DOMAIN.kept_back(changed, host) == amounts
    assert DOMAIN.kept_back([KeyChange(CONF, "maxPods", "1", "2", ())], host) == {}
